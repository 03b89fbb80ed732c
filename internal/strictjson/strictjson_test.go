// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"bawn/internal/codes"
	"bawn/internal/strictjson"
)

func TestTaken(t *testing.T) {
	for _, in := range []string{
		`null`, `true`, `false`, `0`, `-0`, `1.5e-3`, `1E400`[:1], `""`, `[]`, `{}`, " [1 ,\t2\r\n] ",
		`{"a":{"a":1},"b":[{"a":1},{"a":2}]}`, `"\u00e9\ud83d\ude00\"\\\/\b\f\n\r\t"`, `"😀€"`, "\"\u2028\"", `"\u0000"`,
		`{"":1}`, `[` + strings.Repeat(`[`, 63) + strings.Repeat(`]`, 64), `123456789012345678901234567890`,
		`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":1,"k":1,"l":1,"m":1,"n":1,"o":1,"p":1,"q":1,"r":1}`,
	} {
		if err := strictjson.Check([]byte(in), strictjson.Limits{}); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// TestRefused holds rows 101 to 106 of the list of attacks, and the forms that
// JSONTestSuite leaves to the reader.
func TestRefused(t *testing.T) {
	many := `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":1,"k":1,"l":1,"m":1,"n":1,"o":1,"p":1,"q":1,"r":1`
	for name, c := range map[string]struct {
		in   string
		code codes.Code
	}{
		"nothing":                    {"", codes.BodyNotJSON},
		"blanks":                     {"  ", codes.BodyNotJSON},
		"a byte order mark":          {"\ufeff{}", codes.BodyNotJSON},
		"UTF-16":                     {"{\x00}\x00", codes.BodyNotJSON},
		"no UTF-8":                   {"\"\xff\"", codes.BodyNotJSON},
		"an overlong quote":          {"\"\xc0\xa2\"", codes.BodyNotJSON},
		"a raw surrogate":            {"\"\xed\xa0\x80\"", codes.BodyNotJSON},
		"a high surrogate alone":     {`"\ud800"`, codes.BodyNotJSON},
		"a low surrogate alone":      {`"\udc00"`, codes.BodyNotJSON},
		"two high ones":              {`"\ud800\ud800"`, codes.BodyNotJSON},
		"two documents":              {"{} {}", codes.BodyNotJSON},
		"two documents on two lines": {"{}\n{}", codes.BodyNotJSON},
		"something behind":           {"{}x", codes.BodyNotJSON},
		"NUL behind":                 {"{}\x00", codes.BodyNotJSON},
		"a comma at the end":         {`{"a":1,}`, codes.BodyNotJSON},
		"a comma at an array's end":  {`[1,]`, codes.BodyNotJSON},
		"no comma":                   {`[1 2]`, codes.BodyNotJSON},
		"a comment":                  {`{/**/}`, codes.BodyNotJSON},
		"single quotes":              {`{'a':1}`, codes.BodyNotJSON},
		"a bare key":                 {`{a:1}`, codes.BodyNotJSON},
		"no colon":                   {`{"a" 1}`, codes.BodyNotJSON},
		"NaN":                        {`NaN`, codes.BodyNotJSON},
		"Infinity":                   {`-Infinity`, codes.BodyNotJSON},
		"True":                       {`True`, codes.BodyNotJSON},
		"a word cut short":           {`nul`, codes.BodyNotJSON},
		"a leading zero":             {`01`, codes.BodyNotJSON},
		"a plus":                     {`+1`, codes.BodyNotJSON},
		"a minus alone":              {`-`, codes.BodyNotJSON},
		"a point without digits":     {`1.`, codes.BodyNotJSON},
		"an exponent without digits": {`1e`, codes.BodyNotJSON},
		"hexadecimal":                {`0x1`, codes.BodyNotJSON},
		"too large a number":         {`1e400`, codes.BodyNotJSON},
		"too long a number":          {strings.Repeat("1", 129), codes.BodyNotJSON},
		"a tab in a string":          {"\"\t\"", codes.BodyNotJSON},
		"a line break in a string":   {"\"\n\"", codes.BodyNotJSON},
		"an unknown escape":          {`"\x41"`, codes.BodyNotJSON},
		"an escape cut short":        {`"\u00`, codes.BodyNotJSON},
		"a form feed between":        {"[\f1]", codes.BodyNotJSON},
		"a no-break space between":   {"[\u00a01]", codes.BodyNotJSON},
		"a string without an end":    {`"a`, codes.BodyNotJSON},
		"an array without an end":    {`[1`, codes.BodyNotJSON},
		"an object without an end":   {`{"a":1`, codes.BodyNotJSON},
		"NUL in a key":               {`{"method\u0000":1}`, codes.BodyNotJSON},
		"a key twice":                {`{"a":1,"b":2,"a":3}`, codes.JSONDuplicateKey},
		"a key in two cases":         {`{"model":1,"MODEL":2}`, codes.JSONDuplicateKey},
		"a key escaped":              {`{"model":1,"\u006dodel":2}`, codes.JSONDuplicateKey},
		"a long s for an s":          {`{"is":1,"i\u017f":2}`, codes.JSONDuplicateKey},
		"the kelvin sign":            {`{"k":1,"` + "\u212a" + `":2}`, codes.JSONDuplicateKey},
		"a letter outside of ASCII":  {`{"é":1,"É":2}`, codes.JSONDuplicateKey},
		"twice far down":             {`[[{"x":{"a":1,"a":2}}]]`, codes.JSONDuplicateKey},
		"twice among many":           {many + `,"R":1}`, codes.JSONDuplicateKey},
		"twice, many between":        {many + `,"s":1,"A":1}`, codes.JSONDuplicateKey},
		"too deep":                   {strings.Repeat("[", 65) + strings.Repeat("]", 65), codes.JSONTooDeep},
		"very deep":                  {strings.Repeat(`{"a":`, 100000), codes.JSONTooDeep},
		"too many values":            {"[" + strings.Repeat("0,", 1000000) + "0]", codes.BodyTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			e, ok := errors.AsType[*strictjson.Error](strictjson.Check([]byte(c.in), strictjson.Limits{}))
			if !ok || e.Code != c.code || e.Detail == "" || e.Offset > len(c.in) {
				t.Errorf("got %v, want %s", e, c.code)
			}
		})
	}
}

// FuzzCheck has encoding/json for its oracle: whatever passes is valid there
// and written by it passes again; whatever is valid there passes, unless it is
// one of the things that are refused on purpose.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,true,null,"\u00e9\ud83d\ude00"],"A":{}}`, `[[[]]]`, `{"k":1,"\u212a":2}`, "\"\xff\"", `1e400`, `"\ud800"`, `{} `} {
		f.Add([]byte(s))
	}
	lim := strictjson.Limits{Depth: 8, Number: 20}
	f.Fuzz(func(t *testing.T, in []byte) {
		err := strictjson.Check(in, lim)
		if err == nil {
			var v any
			dec := json.NewDecoder(bytes.NewReader(in))
			dec.UseNumber()
			if err := dec.Decode(&v); err != nil {
				t.Fatalf("passes and is %v", err)
			}
			again, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if err := strictjson.Check(again, lim); err != nil {
				t.Fatalf("%s passes, %s does not: %v", in, again, err)
			}
			return
		}
		if why := refusable(in, 8, 20); json.Valid(in) && why == "" {
			t.Fatalf("refused with %v", err)
		}
	})
}

// refusable says why a valid document may be refused, "" if nothing is known.
func refusable(in []byte, depth, number int) string {
	if !utf8.Valid(in) || bytes.HasPrefix(in, []byte("\ufeff")) {
		return "encoding"
	}
	dec := json.NewDecoder(bytes.NewReader(in))
	dec.UseNumber()
	why := ""
	type level struct {
		object, key bool
		keys        []string
	}
	var stack []level
	for {
		tok, err := dec.Token()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				why = "not valid"
			}
			return why
		}
		var top *level
		if len(stack) > 0 {
			top = &stack[len(stack)-1]
		}
		isKey := top != nil && top.object && top.key
		if top != nil {
			top.key = !top.key
		}
		switch tok := tok.(type) {
		case json.Delim:
			switch tok {
			case '{', '[':
				stack = append(stack, level{object: tok == '{', key: tok == '{'})
				if len(stack) > depth {
					why = "depth"
				}
			default:
				stack = stack[:len(stack)-1]
				if len(stack) > 0 {
					stack[len(stack)-1].key = stack[len(stack)-1].object
				}
			}
		case json.Number:
			if f, err := strconv.ParseFloat(string(tok), 64); err != nil || len(tok) > number {
				why = fmt.Sprint("number ", f)
			}
		case string:
			if strings.ContainsRune(tok, utf8.RuneError) {
				why = "surrogate"
			}
			if !isKey {
				continue
			}
			if strings.ContainsRune(tok, 0) {
				why = "NUL"
			}
			for _, k := range top.keys {
				if strings.EqualFold(k, tok) {
					why = "twice"
				}
			}
			top.keys = append(top.keys, tok)
		}
	}
}
