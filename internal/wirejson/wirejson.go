// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wirejson reads the JSON that Bawn's own processes send each other.
//
// Both ends are of one build, so whatever one end cannot know is an error, and
// whatever two readers could read in two ways is refused. It is for messages
// between programs that were written together, not for what agents send.
package wirejson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxDepth bounds how deep a message nests.
const maxDepth = 8

// Decode reads exactly one JSON object into v. It refuses what encoding/json
// would let pass: keys that v does not have or that differ in case, doubled
// keys, trailing data and deep nesting.
func Decode(data []byte, v any) error {
	if err := checkKeys(data); err != nil {
		return fmt.Errorf("reading message: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("reading message: %w", err)
	}
	return nil
}

// checkKeys walks over one JSON object and refuses what Decode promises to
// refuse and a struct decoder does not see.
func checkKeys(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	first, err := dec.Token()
	if err != nil {
		return err
	}
	if first != json.Delim('{') {
		return errors.New("not a JSON object")
	}
	if err := walkObject(dec, 1); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

func walkObject(dec *json.Decoder, depth int) error {
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		if !plainKey(key) {
			return fmt.Errorf("key %q: not of a-z, 0-9 and '_'", key)
		}
		if seen[key] {
			return fmt.Errorf("key %q: twice", key)
		}
		seen[key] = true
		if err := walkValue(dec, depth); err != nil {
			return err
		}
	}
	_, err := dec.Token() // the closing brace
	return err
}

func walkValue(dec *json.Decoder, depth int) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	delim, nested := token.(json.Delim)
	if !nested {
		return nil
	}
	if depth >= maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	if delim == '{' {
		return walkObject(dec, depth+1)
	}
	for dec.More() {
		if err := walkValue(dec, depth+1); err != nil {
			return err
		}
	}
	_, err = dec.Token() // the closing bracket
	return err
}

// plainKey reports whether every key of this API could be spelled like s. It
// closes the gap that encoding/json matches keys without regard to case.
func plainKey(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' {
			return false
		}
	}
	return s != ""
}
