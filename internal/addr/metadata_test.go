// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package addr_test

import (
	"testing"

	"bawn/internal/addr"
)

func TestMetadataIsKnownByNameAndAddress(t *testing.T) {
	for asked, want := range map[string]bool{
		"169.254.169.254": true, "169.254.169.254:80": true, "[fd00:ec2::254]:80": true, "[fd00:ec2::254]": true, "fd00:ec2::254": true,
		"[::ffff:169.254.169.254]:80": true, "[64:ff9b::a9fe:a9fe]:443": true, "100.100.100.200:80": true, "168.63.129.16:32526": true,
		"metadata.google.internal": true, "Metadata.Google.Internal.": true, "metadata.google.internal:80": true, "instance-data.ec2.internal": true, "metadata": true,
		"": false, "169.254.1.1": false, "169.254.169.254.nip.io": false, "metadata.example.com": false, "x.metadata.google.internal": false,
		"api.example.com:443": false, ":80": false, "192.0.2.1:80": false, "[": false,
	} {
		if got := addr.IsMetadataHost(asked); got != want {
			t.Errorf("%q: %v", asked, got)
		}
	}
}
