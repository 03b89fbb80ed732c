// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"bawn/internal/proc"
	"bawn/internal/roottest"

	"golang.org/x/sys/unix"
)

const (
	agentUID = 1900000042
	agentGID = 1900000042
)

// newState makes a state directory with one agent, as Bawn's accounts part
// does.
func newState(t testing.TB) string {
	t.Helper()
	state := filepath.Join(t.TempDir(), "var/lib/bawn")
	for _, dir := range []string{"agents/dev", "public"} {
		if err := os.MkdirAll(filepath.Join(state, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"home", "work", "tmp"} {
		p := filepath.Join(state, "agents/dev", dir)
		if err := os.Mkdir(p, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(p, agentUID, agentGID); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{proc.CAFile, proc.BundleFile} {
		if err := os.WriteFile(filepath.Join(state, "public", name), []byte("the roots of "+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return state
}

// newNetns makes a network namespace with nothing in it.
func newNetns(t *testing.T) *os.File {
	t.Helper()
	made := make(chan *os.File)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			t.Error(err)
		}
		made <- f
	}()
	f := <-made
	t.Cleanup(func() { f.Close() })
	return f
}

func spec(state string, argv ...string) proc.Spec {
	return proc.Spec{
		Session: "s-1",
		Agent:   "dev",
		UID:     agentUID,
		GID:     agentGID,
		Argv:    argv,
		Env:     []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/dev"},
		State:   state,
	}
}

// result is what one session said and how it ended.
type result struct {
	out, err string
	proc.Exit
}

func run(t *testing.T, s proc.Spec) result {
	t.Helper()
	return runIn(t, s, newNetns(t))
}

// runIn runs s in a network namespace; nil is the test's own.
func runIn(t *testing.T, s proc.Spec, netns *os.File) result {
	t.Helper()
	c, err := proc.Start(t.Context(), s, netns, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Stdin.Close()
	stderr := make(chan string)
	go func() {
		b, _ := io.ReadAll(c.Stderr)
		stderr <- string(b)
	}()
	out, _ := io.ReadAll(c.Stdout)
	r := result{out: string(out), err: <-stderr}
	r.Exit = c.Wait()
	return r
}

// sh runs a shell script as the agent and returns what it printed.
func sh(t *testing.T, script string) string {
	t.Helper()
	roottest.Require(t)
	r := run(t, spec(newState(t), "sh", "-c", script))
	if r.Fault != "" {
		t.Fatalf("fault: %s", r.Fault)
	}
	if r.err != "" {
		t.Log(r.err)
	}
	return strings.TrimSuffix(r.out, "\n")
}

// starterVerb makes the test binary a process that starts an agent and waits to
// be killed.
const starterVerb = "starter"

func starter(state string) int {
	c, err := proc.Start(context.Background(), spec(state, "sleep", "1000"), nil, nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(c.PID())
	select {}
}

func TestI13TheEndOfTheStarterIsTheEndOfTheAgent(t *testing.T) {
	roottest.Require(t)
	cmd := exec.Command("/proc/self/exe", starterVerb, newState(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	cmd.Process.Kill()
	cmd.Wait()
	ended := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(ended, -1); n == 1 {
			break
		} else if err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

func TestTheCommandsStatusIsTheSessions(t *testing.T) {
	roottest.Require(t)
	for script, want := range map[string]int{
		"exit 0":                      0,
		"exit 3":                      3,
		"exit 127":                    127,
		"kill -9 $$":                  128 + 9,
		"kill -TERM $$":               128 + 15,
		"(sleep 1000 &) ; exit 5":     5, // what it leaves behind ends with it
		"sleep 1000 & wait $! & exit": 0,
	} {
		r := run(t, spec(newState(t), "sh", "-c", script))
		if r.Status != want || r.Fault != "" {
			t.Errorf("%q: status %d, fault %q, want %d", script, r.Status, r.Fault, want)
		}
	}
}

func TestFaultsSayWhatToDo(t *testing.T) {
	roottest.Require(t)
	state := newState(t)
	home := filepath.Join(state, "agents/dev/home")
	writeTree(t, map[string]string{
		home + "/plain.txt":        "x",
		home + "/bin/my-script":    "#!/home/alice/.nvm/bin/node\n",
		home + "/bin/broken":       "\x00\x01\x02",
		home + "/bin/notmine":      "#!/bin/sh\n",
		home + "/closed/bin/thing": "#!/bin/sh\n",
	})
	for p, mode := range map[string]os.FileMode{"/plain.txt": 0o644, "/bin/notmine": 0o700, "/closed": 0o700} {
		if err := os.Chmod(home+p, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/home/alice/.local/share/tool/1.0/tool", home+"/bin/my-link"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		argv   []string
		dir    string
		status int
		fault  string
	}{
		"by name": {argv: []string{"no-such-tool"}, status: proc.StatusNotFound,
			fault: `command "no-such-tool": not found in the agent's PATH (/usr/bin:/home/dev/bin:relative). Programs under your own home are not in the agent's view: lend their directory with --lend DIR`},
		"under the operator's home": {argv: []string{"/home/alice/bin/tool"}, status: proc.StatusNotFound,
			fault: `command "/home/alice/bin/tool": /home/alice/bin/tool is not in the agent's view. If it is there on the host, lend its directory with --lend /home/alice/bin`},
		"a link that leads there": {argv: []string{"my-link"}, status: proc.StatusNotFound,
			fault: `command "my-link": /home/dev/bin/my-link leads to /home/alice/.local/share/tool/1.0/tool, which is not in the agent's view: lend its directory with --lend /home/alice/.local/share/tool/1.0`},
		"an interpreter that is there": {argv: []string{"my-script"}, status: proc.StatusNoExec,
			fault: `command "my-script": /home/dev/bin/my-script is run by /home/alice/.nvm/bin/node, which is not in the agent's view: lend its directory with --lend /home/alice/.nvm/bin`},
		"unreachable": {argv: []string{"/home/dev/closed/bin/thing"}, status: proc.StatusNoExec,
			fault: `command "/home/dev/closed/bin/thing": the agent's account cannot reach /home/dev/closed/bin/thing (permission denied): lend its directory with --lend /home/dev/closed/bin, or install it for everybody`},
		"not executable": {argv: []string{"/home/dev/plain.txt"}, status: proc.StatusNoExec,
			fault: `command "/home/dev/plain.txt": /home/dev/plain.txt is not executable by the agent's account`},
		"not executable by the agent": {argv: []string{"notmine"}, status: proc.StatusNoExec,
			fault: `command "notmine": /home/dev/bin/notmine is not executable by the agent's account`},
		"not a program": {argv: []string{"broken"}, status: proc.StatusNoExec,
			fault: `command "broken": /home/dev/bin/broken is not a program: exec format error`},
		"a directory": {argv: []string{"/usr"}, status: proc.StatusNoExec,
			fault: `command "/usr": /usr is a directory`},
		"no such directory": {argv: []string{"true"}, dir: "/home/alice/src", status: proc.StatusNoExec,
			fault: `command "true": working directory /home/alice/src is not in the agent's view`},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(state, c.argv...)
			s.Env = []string{"PATH=/usr/bin:/home/dev/bin:relative"}
			s.Dir = c.dir
			r := run(t, s)
			if r.Status != c.status || r.Fault != c.fault {
				t.Errorf("status %d, fault\n%s\nwant %d\n%s", r.Status, r.Fault, c.status, c.fault)
			}
		})
	}
}

func TestABadSpecStartsNothing(t *testing.T) {
	roottest.Require(t)
	good := spec(newState(t), "true")
	for name, change := range map[string]func(s *proc.Spec){
		"root":              func(s *proc.Spec) { s.UID = 0 },
		"root's group":      func(s *proc.Spec) { s.GID = 0 },
		"a path as agent":   func(s *proc.Spec) { s.Agent = "../dev" },
		"a path as session": func(s *proc.Spec) { s.Session = "../s" },
		"no command":        func(s *proc.Spec) { s.Argv = nil },
		"NUL in a variable": func(s *proc.Spec) { s.Env = []string{"A=b\x00c"} },
		"no such agent":     func(s *proc.Spec) { s.Agent = "nobody" },
		"somebody else's":   func(s *proc.Spec) { s.UID = agentUID + 1 },
		"no state":          func(s *proc.Spec) { s.State = "/nowhere" },
		"relative state":    func(s *proc.Spec) { s.State = "var" },
		"relative dir":      func(s *proc.Spec) { s.Dir = "work" },
		"lend without fd":   func(s *proc.Spec) { s.Lends = []proc.Mount{{Path: "/home/alice/bin"}} },
		"lend of /etc":      func(s *proc.Spec) { s.Lends = []proc.Mount{{Path: "/etc/alice"}} },
		"lend of home":      func(s *proc.Spec) { s.Lends = []proc.Mount{{Path: "/home/dev/x"}} },
		"lend of all":       func(s *proc.Spec) { s.Lends = []proc.Mount{{Path: "/"}} },
		"unclean lend":      func(s *proc.Spec) { s.Lends = []proc.Mount{{Path: "/home/alice/../dev"}} },
	} {
		t.Run(name, func(t *testing.T) {
			s := good
			change(&s)
			c, err := proc.Start(t.Context(), s, nil, nil)
			if err == nil {
				c.Close()
				t.Fatal("started")
			}
			t.Log(err)
			if left, _ := os.ReadDir(filepath.Join(good.State, "agents/dev/tmp")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestAViewThatCannotBeBuiltIsAnError(t *testing.T) {
	roottest.Require(t)
	s := spec(newState(t), "true")
	if err := os.Remove(filepath.Join(s.State, "public", proc.BundleFile)); err != nil {
		t.Fatal(err)
	}
	_, err := proc.Start(t.Context(), s, nil, nil)
	if err == nil || !strings.Contains(err.Error(), proc.BundleFile) {
		t.Errorf("%v", err)
	}
}

func TestAStartThatIsCancelledLeavesNothing(t *testing.T) {
	roottest.Require(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := spec(newState(t), "sleep", "1000")
	if c, err := proc.Start(ctx, s, nil, nil); err == nil {
		c.Close()
		t.Fatal("started")
	}
	if left, _ := os.ReadDir(filepath.Join(s.State, "agents/dev/tmp")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestSignalsReachTheCommandAndKillEndsAll(t *testing.T) {
	roottest.Require(t)
	c, err := proc.Start(t.Context(), spec(newState(t), "sh", "-c", `trap 'echo usr1' USR1; trap 'exit 9' TERM; echo up; while :; do read x; done`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lines := bufio.NewReader(c.Stdout)
	next := func(want string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); got != want+"\n" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	next("up")
	for _, step := range []struct {
		sig  syscall.Signal
		want string
	}{{syscall.SIGUSR1, "usr1"}} {
		if err := c.Signal(step.sig); err != nil {
			t.Fatal(err)
		}
		c.Stdin.WriteString("\n")
		next(step.want)
	}
	if err := c.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.Stdin.WriteString("\n")
	if e := c.Wait(); e.Status != 9 {
		t.Errorf("%+v", e)
	}
	if err := c.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("a signal after the end: %v", err)
	}

	c, err = proc.Start(t.Context(), spec(newState(t), "sh", "-c", `trap '' TERM HUP INT; echo up; setsid sleep 1000 & while :; do sleep 1000; done`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lines = bufio.NewReader(c.Stdout)
	next("up")
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if e := c.Wait(); e.Status != 128+9 || e.Fault != "" {
		t.Errorf("%+v", e)
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err) // and it ends: nobody is left who holds the pipe
	}
}

func TestATerminalOfItsOwn(t *testing.T) {
	roottest.Require(t)
	s := spec(newState(t), "sh", "-c", `tty; stty size; echo ready; read x; stty size; echo "got $x"; trap 'echo interrupted; exit 4' INT; echo trap; while :; do sleep 0.1; done`)
	s.TTY, s.Rows, s.Cols = true, 33, 111
	c, err := proc.Start(t.Context(), s, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Stdin != nil || c.Stdout != nil || c.Stderr != nil {
		t.Error("pipes beside a terminal")
	}
	lines := bufio.NewReader(c.Master)
	next := func(want string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); got != want+"\r\n" {
			c.Close()
			t.Fatalf("%q, %v, want %q; %+v", got, err, want, c.Wait())
		}
	}
	next("/dev/pts/0")
	next("33 111")
	next("ready")
	if err := unix.IoctlSetWinsize(int(c.Master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 20, Col: 50}); err != nil {
		t.Fatal(err)
	}
	c.Master.WriteString("hello\n")
	next("hello") // the terminal's echo
	next("20 50")
	next("got hello")
	next("trap")
	c.Master.WriteString("\x03")
	next("^Cinterrupted")
	if e := c.Wait(); e.Status != 4 {
		t.Errorf("%+v", e)
	}
}

func TestProcess1ReapsWhatIsLeftToIt(t *testing.T) {
	got := sh(t, `for i in 1 2 3 4 5; do sh -c '(exit 0) & exit 0'; done; sleep 0.2; grep -h State /proc/[0-9]*/status | grep -c zombie`)
	if got != "0" {
		t.Errorf("%s zombies", got)
	}
}

func TestSessionsHaveTheirOwnTemporaryDirectory(t *testing.T) {
	roottest.Require(t)
	state := newState(t)
	first := spec(state, "sh", "-c", "echo 1 > /tmp/a; echo 2 > /var/tmp/a; mkdir -m 000 /tmp/closed; ln -s /etc /tmp/link; cat /tmp/a /var/tmp/a; echo home > ~/kept")
	if r := run(t, first); r.out != "1\n2\n" {
		t.Errorf("%q %q", r.out, r.err)
	}
	if left, err := os.ReadDir(filepath.Join(state, "agents/dev/tmp")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	second := spec(state, "sh", "-c", "ls -A /tmp /var/tmp; cat ~/kept")
	second.Session = "s-2"
	if r := run(t, second); r.out != "/tmp:\n\n/var/tmp:\nhome\n" {
		t.Errorf("%q %q", r.out, r.err)
	}
	if err := os.MkdirAll(filepath.Join(state, "agents/dev/tmp/s-9/tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	dirs, err := proc.LeftTemps(state)
	if err == nil {
		err = proc.RemoveTemps(t.Context(), dirs)
	}
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(state, "agents/dev/tmp")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestACgroupIsJoinedBeforeTheAgentRuns(t *testing.T) {
	c, _ := newCgroups(t)
	g, err := c.New(1, proc.Limits{PIDs: 20})
	if err != nil {
		t.Fatal(err)
	}
	// The namespace's root is the session's own group: nothing above shows.
	s := spec(newState(t), "sh", "-c", `cat /proc/self/cgroup | grep -c bawn; for i in $(seq 100); do sleep 100 & done; echo survived`)
	child, err := proc.Start(t.Context(), s, nil, g)
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	child.Stdin.Close()
	go io.Copy(io.Discard, child.Stderr)
	out, _ := io.ReadAll(child.Stdout)
	if e := child.Wait(); e.Status == 0 || string(out) != "0\n" {
		t.Errorf("status %d, said %q: a limit of 20 processes let 100 be", e.Status, out)
	}
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

func BenchmarkStart(b *testing.B) {
	roottest.Require(b)
	state := newState(b)
	for b.Loop() {
		c, err := proc.Start(b.Context(), spec(state, "true"), nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		c.Wait()
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
