// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The forms in which the YAML library says what does not fit, in words of Go.
var (
	unknownKey = regexp.MustCompile(`^line (\d+): field (.*) not found in type (\S+)$`)
	wrongType  = regexp.MustCompile("^line (\\d+): cannot unmarshal !!(\\w+)(?: `(.*)`)? into (\\S+)$")
)

// readable puts the library's errors into words of the file.
func readable(err error) error {
	e, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var all []error
	for _, text := range e.Errors {
		if m := unknownKey.FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf("line %s: unknown key %q (known here: %s)", m[1], m[2], strings.Join(keys(m[3]), ", "))
		} else if m := wrongType.FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf("line %s: wants %s, has %s", m[1], kind(m[4]), has(m[2], m[3]))
		}
		all = append(all, errors.New(text))
	}
	return errors.Join(all...)
}

// sections are what the file holds under keys of its own.
var sections = []reflect.Type{reflect.TypeFor[Limits](), reflect.TypeFor[Credential](), reflect.TypeFor[ParentProxy](), reflect.TypeFor[Wildcards](), reflect.TypeFor[Grants](), reflect.TypeFor[Doctor](), reflect.TypeFor[Audit]()}

// keys are those of the section that Go type is read into.
func keys(goType string) []string {
	section := reflect.TypeFor[Config]()
	for _, s := range sections {
		if goType == s.String() {
			section = s
		}
	}
	var list []string
	for i := range section.NumField() {
		list = append(list, section.Field(i).Tag.Get("yaml"))
	}
	return list
}

func kind(goType string) string {
	switch {
	case goType == "int":
		return "a number"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case goType == "time.Duration":
		return "a duration such as 24h"
	case goType == "bool":
		return "true or false"
	case strings.HasPrefix(goType, "config."), strings.HasPrefix(goType, "map["):
		return "keys and values"
	}
	return "text"
}

func has(tag, value string) string {
	switch {
	case tag == "seq":
		return "a list"
	case tag == "map":
		return "keys and values"
	case value == "":
		return "nothing"
	}
	return fmt.Sprintf("%q", value)
}
