// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits bounds one session; zero means no limit.
type Limits struct {
	PIDs        int   // processes and threads
	MemoryBytes int64 // bytes
	CPUPercent  int   // 100 is one core
}

// Cgroups makes and finds the cgroups of sessions, named ROOT/slot-N in every
// hierarchy that can be used. What it makes carries that mark; it touches
// nothing else.
type Cgroups struct {
	root  string
	trees []hierarchy
}

// A hierarchy is one mounted cgroup file system.
type hierarchy struct {
	at          string   // where it is mounted
	unified     bool     // version 2
	controllers []string // those of pids, memory, cpu and freezer that it has
}

func (h hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// wanted are the controllers that serve a session. The freezer is one in
// version 1 only; version 2 freezes any group.
var wanted = []string{"pids", "memory", "cpu", "freezer"}

var rootForm = regexp.MustCompile(`^bawn(-[A-Za-z0-9]+)?$`)

// OpenCgroups finds the hierarchies of this host and makes Bawn's own group in
// each that is of use. root is the group's name: "bawn" or "bawn-WORD".
func OpenCgroups(root string) (*Cgroups, error) {
	if !rootForm.MatchString(root) {
		return nil, fmt.Errorf("opening cgroups %q: not bawn or bawn-WORD", root)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("opening cgroups: %w", err)
	}
	c := &Cgroups{root: root}
	for _, h := range parseHierarchies(string(table)) {
		err := c.adopt(&h)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
			continue // a container's view: looked at, not to be changed
		}
		if err != nil {
			return nil, fmt.Errorf("opening cgroups in %s: %w", h.at, err)
		}
		if h.unified || len(h.controllers) > 0 {
			c.trees = append(c.trees, h)
		}
	}
	return c, nil
}

// parseHierarchies reads the cgroup mounts out of a mountinfo table (proc(5)).
// Of several mounts of one hierarchy the first counts.
func parseHierarchies(table string) []hierarchy {
	var found []hierarchy
	seen := map[string]bool{}
	for line := range strings.Lines(table) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 3 || left[3] != "/" {
			continue // not whole: somebody's mount of a part
		}
		h := hierarchy{at: unescape(left[4])}
		switch right[0] {
		case "cgroup2":
			h.unified = true
		case "cgroup":
			for o := range strings.SplitSeq(right[2], ",") {
				if slices.Contains(wanted, o) {
					h.controllers = append(h.controllers, o)
				}
			}
			if len(h.controllers) == 0 {
				continue
			}
		default:
			continue
		}
		if device := left[2]; !seen[device] {
			seen[device] = true
			found = append(found, h)
		}
	}
	return found
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// adopt makes Bawn's group in h and, in version 2, hands the controllers down
// to it, as far as the host has them.
func (c *Cgroups) adopt(h *hierarchy) error {
	if h.unified {
		available, err := os.ReadFile(filepath.Join(h.at, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for name := range strings.FieldsSeq(string(available)) {
			if !slices.Contains(wanted, name) {
				continue
			}
			// Refused where the host's own arrangement does not allow it: then
			// the limit cannot be held here, and Unenforced says so.
			if writeFile(filepath.Join(h.at, "cgroup.subtree_control"), "+"+name) == nil {
				h.controllers = append(h.controllers, name)
			}
		}
	}
	group := filepath.Join(h.at, c.root)
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if !h.unified {
		return nil
	}
	for _, name := range h.controllers {
		if err := writeFile(filepath.Join(group, "cgroup.subtree_control"), "+"+name); err != nil {
			return err
		}
	}
	return nil
}

// slotName is the mark that slot groups carry.
func slotName(slot int) string { return "slot-" + strconv.Itoa(slot) }

var slotForm = regexp.MustCompile(`^slot-[0-9]+$`)

// New makes the cgroups of a slot, which must be new and empty, and sets its
// limits. On an error nothing is left.
func (c *Cgroups) New(slot int, limits Limits) (*Cgroup, error) {
	whole := c.slot(slot)
	g := &Cgroup{path: whole.path}
	for _, d := range whole.dirs {
		err := os.Mkdir(d.dir, 0o755)
		if errors.Is(err, fs.ErrNotExist) && !d.unified {
			// systemd takes away empty groups of version 1 that are not its own.
			// In version 2 it does not, and the firewall knows ours by number.
			err = errors.Join(os.Mkdir(filepath.Dir(d.dir), 0o755), os.Mkdir(d.dir, 0o755))
		}
		if err == nil {
			g.dirs = append(g.dirs, d)
			err = d.limit(limits)
		}
		if err != nil { // of what was there before nothing is removed
			return nil, errors.Join(fmt.Errorf("making cgroups of slot %d: %w", slot, err), g.Remove())
		}
	}
	return g, nil
}

func (c *Cgroups) slot(slot int) *Cgroup {
	g := &Cgroup{path: filepath.Join(c.root, slotName(slot))}
	for _, h := range c.trees {
		g.dirs = append(g.dirs, groupDir{h, filepath.Join(h.at, g.path)})
	}
	return g
}

// Leftovers removes what an earlier run left, killing what still runs in it.
// It touches nothing but slot-N groups below Bawn's root.
func (c *Cgroups) Leftovers() error {
	names := map[string]bool{}
	for _, h := range c.trees {
		entries, err := os.ReadDir(filepath.Join(h.at, c.root))
		if err != nil {
			return fmt.Errorf("finding left cgroups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && slotForm.MatchString(e.Name()) {
				names[e.Name()] = true
			}
		}
	}
	var errs []error
	for name := range names {
		slot, _ := strconv.Atoi(strings.TrimPrefix(name, "slot-"))
		g := c.slot(slot)
		errs = append(errs, g.Kill(), g.Remove())
	}
	return errors.Join(errs...)
}

// Remove removes Bawn's own groups, which must hold no slot any more.
func (c *Cgroups) Remove() error {
	var errs []error
	for _, h := range c.trees {
		if err := unix.Rmdir(filepath.Join(h.at, c.root)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, &os.PathError{Op: "removing", Path: filepath.Join(h.at, c.root), Err: err})
		}
	}
	return errors.Join(errs...)
}

// Path is the version 2 cgroup of a slot, relative to the hierarchy's root, for
// the firewall's match; false without such a hierarchy.
func (c *Cgroups) Path(slot int) (string, bool) { return c.slot(slot).Path() }

// Unenforced names what no hierarchy of this host can do: "pids", "memory" and
// "cpu" are limits, "freezer" is stopping a session, "cgroup2" is the match of
// the firewall.
func (c *Cgroups) Unenforced() []string {
	var missing []string
	unified := slices.ContainsFunc(c.trees, func(h hierarchy) bool { return h.unified })
	for _, name := range wanted {
		if name == "freezer" && unified {
			continue
		}
		if !slices.ContainsFunc(c.trees, func(h hierarchy) bool { return h.has(name) }) {
			missing = append(missing, name)
		}
	}
	if !unified {
		missing = append(missing, "cgroup2")
	}
	return missing
}

// A Cgroup is the set of cgroups of one slot.
type Cgroup struct {
	path string
	dirs []groupDir
}

type groupDir struct {
	hierarchy
	dir string
}

func (d groupDir) limit(l Limits) error {
	for _, s := range d.settings(l) {
		if err := writeFile(filepath.Join(d.dir, s[0]), s[1]); err != nil {
			return err
		}
	}
	return nil
}

// settings are the files that hold the limits, with what to write.
func (d groupDir) settings(l Limits) (s [][2]string) {
	const period = 100_000 // microseconds
	quota := strconv.Itoa(l.CPUPercent * period / 100)
	add := func(controller string, set bool, v1, v2 [2]string) {
		switch {
		case !set || !d.has(controller):
		case d.unified:
			s = append(s, v2)
		default:
			s = append(s, v1)
		}
	}
	pids := [2]string{"pids.max", strconv.Itoa(l.PIDs)}
	bytes := strconv.FormatInt(l.MemoryBytes, 10)
	add("pids", l.PIDs > 0, pids, pids)
	add("memory", l.MemoryBytes > 0, [2]string{"memory.limit_in_bytes", bytes}, [2]string{"memory.max", bytes})
	add("cpu", l.CPUPercent > 0, [2]string{"cpu.cfs_quota_us", quota}, [2]string{"cpu.max", quota + " " + strconv.Itoa(period)})
	return s
}

// Add moves a process in.
func (g *Cgroup) Add(pid int) error {
	for _, d := range g.dirs {
		if err := writeFile(filepath.Join(d.dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("moving process %d into its cgroup: %w", pid, err)
		}
	}
	return nil
}

// unified returns the version 2 directory.
func (g *Cgroup) unified() (string, bool) {
	for _, d := range g.dirs {
		if d.hierarchy.unified {
			return d.dir, true
		}
	}
	return "", false
}

// Path is like [Cgroups.Path].
func (g *Cgroup) Path() (string, bool) {
	_, ok := g.unified()
	return g.path, ok
}

// ID is the number by which the kernel knows the version 2 cgroup; it is what
// the firewall's match holds.
func (g *Cgroup) ID() (uint64, error) {
	dir, ok := g.unified()
	if !ok {
		return 0, errors.New("finding a cgroup's number: this host has no version 2 hierarchy")
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, &os.PathError{Op: "finding", Path: dir, Err: err}
	}
	return st.Ino, nil
}

// patience bounds the wait for the kernel to do as it was told.
const patience = 10 * time.Second

// Kill ends every process in it and waits until none is left.
func (g *Cgroup) Kill() error {
	deadline := time.Now().Add(patience)
	for {
		left, err := g.killOnce()
		if err != nil {
			return fmt.Errorf("killing cgroup %s: %w", g.path, err)
		}
		if !left {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("killing cgroup %s: processes are left after %v", g.path, patience)
		}
		time.Sleep(time.Millisecond)
	}
}

// killOnce kills what is there now. A frozen group dies all the same in
// version 2; in version 1 it must thaw.
func (g *Cgroup) killOnce() (left bool, err error) {
	for _, d := range g.dirs {
		procs, err := os.ReadFile(filepath.Join(d.dir, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return false, err
		}
		pids := strings.Fields(string(procs))
		if len(pids) == 0 {
			continue
		}
		left = true
		if d.hierarchy.unified && writeFile(filepath.Join(d.dir, "cgroup.kill"), "1") == nil {
			continue
		}
		for _, p := range pids {
			if pid, err := strconv.Atoi(p); err == nil && pid > 0 {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		if d.has("freezer") && !d.hierarchy.unified {
			writeFile(filepath.Join(d.dir, "freezer.state"), "THAWED")
		}
	}
	return left, nil
}

// Freeze stops every process in it. It does not wait: a process in the
// kernel's hands stops when it comes back from there. See [Cgroup.Frozen].
func (g *Cgroup) Freeze() error { return g.setFrozen(true) }

// Thaw undoes Freeze.
func (g *Cgroup) Thaw() error { return g.setFrozen(false) }

func (g *Cgroup) setFrozen(frozen bool) error {
	file, value := "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[frozen]
	dir, unified, err := g.freezer()
	if unified {
		file, value = "cgroup.freeze", map[bool]string{true: "1", false: "0"}[frozen]
	}
	if err == nil {
		err = writeFile(filepath.Join(dir, file), value)
	}
	if err != nil {
		return fmt.Errorf("freezing cgroup %s: %w", g.path, err)
	}
	return nil
}

// Frozen reports whether every process in it stands still.
func (g *Cgroup) Frozen() (bool, error) {
	file, want := "freezer.state", "FROZEN"
	dir, unified, err := g.freezer()
	if unified {
		file, want = "cgroup.events", "frozen 1"
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(filepath.Join(dir, file))
	}
	if err != nil {
		return false, fmt.Errorf("asking whether cgroup %s is frozen: %w", g.path, err)
	}
	return slices.Contains(strings.Split(string(text), "\n"), want), nil
}

// freezer finds the directory that freezes: version 2 if there is one.
func (g *Cgroup) freezer() (dir string, unified bool, err error) {
	if dir, ok := g.unified(); ok {
		return dir, true, nil
	}
	for _, d := range g.dirs {
		if d.has("freezer") {
			return d.dir, false, nil
		}
	}
	return "", false, errors.New("this host has neither a version 2 hierarchy nor a freezer")
}

// Remove removes the cgroups, which must hold no process. What is gone already
// is no error.
func (g *Cgroup) Remove() error {
	var errs []error
	for _, d := range g.dirs {
		if err := removeGroup(d.dir); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeGroup removes one directory. The kernel may call it busy for a moment
// after its last process has ended.
func removeGroup(dir string) error {
	deadline := time.Now().Add(patience)
	for {
		err := unix.Rmdir(dir)
		switch {
		case err == nil || errors.Is(err, fs.ErrNotExist):
			return nil
		case !errors.Is(err, unix.EBUSY) || time.Now().After(deadline):
			return &os.PathError{Op: "removing cgroup", Path: dir, Err: err}
		}
		time.Sleep(time.Millisecond)
	}
}

// writeFile writes to a file of the kernel, which must exist.
func writeFile(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
