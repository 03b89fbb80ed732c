// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"bawn/internal/apitype"
)

// TestOutputThatIsLostIsSaid uses a device that is always full; the program's
// end must hear of it too, since it would wait for ever for a reader.
func TestOutputThatIsLostIsSaid(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	lost := show(full, &sync.Mutex{}, r)
	if !errors.Is(lost, syscall.ENOSPC) {
		t.Fatalf("error %v", lost)
	}
	if _, err := w.WriteString("x"); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the program's next write: %v", err)
	}
	for _, c := range []struct{ in, want apitype.Exit }{
		{apitype.Exit{}, apitype.Exit{Status: statusLost, Fault: "no space left"}},
		{apitype.Exit{Status: 7}, apitype.Exit{Status: 7, Fault: "no space left"}},
		{apitype.Exit{Status: 125, Fault: "netd ended"}, apitype.Exit{Status: 125, Fault: "netd ended"}},
	} {
		if got := withLost(c.in, lost); got.Status != c.want.Status || !strings.Contains(got.Fault, c.want.Fault) {
			t.Errorf("%+v: %+v", c.in, got)
		}
	}
	if got := withLost(apitype.Exit{}, nil); got != (apitype.Exit{}) {
		t.Errorf("nothing lost: %+v", got)
	}
}
