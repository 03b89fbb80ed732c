// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"bawn/internal/config"
	"bawn/internal/supervise"
)

//go:embed units
var units embed.FS

//go:embed config.yaml
var defaultConfig []byte

// Target is the unit that holds all others.
const Target = "bawn.target"

// A Layout is where files go.
type Layout struct {
	Paths    config.Paths
	Binary   string // as units start it, absolute
	Units    string // directories, absolute and below Paths.Root
	Sysusers string
	Tmpfiles string
}

// Own is the layout of "bawn install": the directories that belong to the
// administrator of a host.
func Own(p config.Paths, binary string) Layout {
	at := func(dir string) string { return filepath.Join(p.Root, dir) }
	return Layout{p, binary, at("etc/systemd/system"), at("etc/sysusers.d"), at("etc/tmpfiles.d")}
}

// Packaged is the layout of a distribution's package.
func Packaged() Layout {
	return Layout{
		config.Paths{Root: "/"}, "/usr/bin/bawn",
		"/lib/systemd/system", "/usr/lib/sysusers.d", "/usr/lib/tmpfiles.d",
	}
}

// A File is one that is put on the host.
type File struct {
	Path   string
	Text   []byte
	Config bool // the operator's, once it is there
}

// plainPath is what units can name without quoting.
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9/._+-]*$`)

// Files are all files of the layout, marked.
func (l Layout) Files() ([]File, error) {
	for _, p := range []string{l.Paths.Root, l.Binary} {
		if !plainPath.MatchString(p) {
			return nil, fmt.Errorf("installing with %q: units can name only paths of A-Z, a-z, 0-9 and /._+-", p)
		}
	}
	entries, err := units.ReadDir("units")
	if err != nil {
		return nil, fmt.Errorf("reading units: %w", err)
	}
	var list []File
	for _, e := range entries {
		text, err := units.ReadFile("units/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("reading units: %w", err)
		}
		list = append(list, File{
			Path: filepath.Join(l.Units, e.Name()),
			Text: marked([]byte(l.place(string(text))), "Change it by a drop-in: systemctl edit "+e.Name()),
		})
	}
	const advice = "Change it by another file."
	return append(list,
		File{Path: filepath.Join(l.Sysusers, "bawn.conf"), Text: marked([]byte(sysusers(l.Paths)), advice)},
		File{Path: filepath.Join(l.Tmpfiles, "bawn.conf"), Text: marked([]byte(tmpfiles(l.Paths)), advice)},
		File{Path: l.Paths.ConfigFile(), Text: marked(defaultConfig, "Change what you like: changes are kept."), Config: true},
	), nil
}

// place puts the layout's own paths into a unit, which is written for the root
// directory.
func (l Layout) place(unit string) string {
	self := l.Binary
	if l.Paths.Root != "/" {
		self += " --root " + l.Paths.Root
	}
	return strings.NewReplacer(
		"/usr/bin/bawn ", self+" ",
		"/run/bawn", l.Paths.Run(),
		"/var/lib/bawn", l.Paths.Lib(),
	).Replace(unit)
}

// sysusers is what systemd-sysusers(8) makes accounts of. "bawn up" makes the
// same with the distribution's tools.
func sysusers(p config.Paths) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#Type Name ID GECOS Home Shell\n")
	fmt.Fprintf(&b, "g %s - -\n", config.Group)
	for _, name := range []string{config.AdminAccount, config.ProxyAccount} {
		fmt.Fprintf(&b, "u %s - \"Bawn\" %s /usr/sbin/nologin\n", name, p.Lib())
	}
	return b.String()
}

// tmpfiles is what systemd-tmpfiles(8) makes directories of: those of "bawn
// up", and the one that is gone after each start of the machine.
func tmpfiles(p config.Paths) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#Type Path Mode User Group Age\n")
	for _, d := range append(supervise.Directories(p), supervise.Directory{Path: p.Run(), Owner: "root", Group: "root", Mode: 0o755}) {
		mode := d.Mode.Perm()
		if d.Mode&os.ModeSetgid != 0 {
			mode |= 0o2000
		}
		fmt.Fprintf(&b, "d %s %04o %s %s -\n", d.Path, uint32(mode), d.Owner, d.Group)
	}
	return b.String()
}
