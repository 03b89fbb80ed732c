// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"testing"

	"bawn/internal/codes"
	"bawn/internal/guard"
	"bawn/internal/httpwire"
	"bawn/internal/verdict"
)

// says is a guard with fixed answers that counts how often it was asked.
type says struct {
	head, body guard.Verdict
	asked      *int
}

func (s says) Head(*guard.Request) guard.Verdict { *s.asked++; return s.head }
func (s says) Body(*guard.Request) guard.Verdict { *s.asked++; return s.body }

var (
	allow = guard.Verdict{Answer: guard.Allow}
	need  = guard.Verdict{Answer: guard.NeedBody}
	deny  = guard.Refuse(codes.FieldNotAllowed, "because")
)

func chain(asked *int, answers ...[2]guard.Verdict) guard.Chain {
	var c guard.Chain
	for _, a := range answers {
		c = append(c, guard.Step{Name: "g", Guard: says{a[0], a[1], asked}})
	}
	return c
}

func TestChainHead(t *testing.T) {
	for name, tc := range map[string]struct {
		answers [][2]guard.Verdict
		effect  verdict.Effect
		code    codes.Code
		need    int // guards that want the body
		asked   int // how many were asked
	}{
		"no guard allows":              {nil, verdict.Allow, "", 0, 0},
		"all allow":                    {[][2]guard.Verdict{{allow}, {allow}}, verdict.Allow, "", 0, 2},
		"the first refusal ends it":    {[][2]guard.Verdict{{allow}, {deny}, {allow}}, verdict.Deny, codes.FieldNotAllowed, 0, 2},
		"who needs the body is kept":   {[][2]guard.Verdict{{need}, {allow}, {need}}, verdict.Allow, "", 2, 3},
		"a refusal beats a need":       {[][2]guard.Verdict{{need}, {deny}}, verdict.Deny, codes.FieldNotAllowed, 0, 2},
		"I12: the zero answer refuses": {[][2]guard.Verdict{{guard.Verdict{}}}, verdict.Deny, codes.InternalError, 0, 1},
		"I12: so does nonsense":        {[][2]guard.Verdict{{guard.Verdict{Answer: 77}}}, verdict.Deny, codes.InternalError, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			v, body := chain(&asked, tc.answers...).Head(&guard.Request{})
			if v.Effect != tc.effect || v.Effect != verdict.Allow && v.Why() != tc.code || len(body) != tc.need || asked != tc.asked {
				t.Errorf("got %+v, %d need the body, %d were asked", v, len(body), asked)
			}
		})
	}
}

func TestChainBody(t *testing.T) {
	asked := 0
	if v := chain(&asked, [2]guard.Verdict{need, allow}, [2]guard.Verdict{need, allow}).Body(&guard.Request{}); !v.Allowed() || asked != 2 {
		t.Errorf("all allow: %+v after %d", v, asked)
	}
	if v := chain(&asked, [2]guard.Verdict{need, deny}, [2]guard.Verdict{need, allow}).Body(&guard.Request{}); v.Why() != codes.FieldNotAllowed || v.Stage != "body" {
		t.Errorf("a refusal: %+v", v)
	}
	if v := chain(&asked, [2]guard.Verdict{need, need}).Body(&guard.Request{}); v.Why() != codes.InternalError {
		t.Errorf("a body asked for twice: %+v", v)
	}
}

func TestWithKeepsOrderAndDropsDoubles(t *testing.T) {
	readOnly, ok := guard.Named("read-only")
	if !ok {
		t.Fatal("no read-only")
	}
	c := guard.Chain{readOnly}
	if got := c.With(c); len(got) != 1 {
		t.Errorf("a guard twice: %v", got)
	}
	if got := guard.Chain(nil).With(c); len(got) != 1 {
		t.Errorf("nothing and one: %v", got)
	}
	if got := c.With(nil); len(got) != 1 {
		t.Errorf("one and nothing: %v", got)
	}
}

func TestListHasEachNameOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range guard.List() {
		if s.Name == "" || s.Guard == nil || seen[s.Name] {
			t.Errorf("step %+v", s)
		}
		seen[s.Name] = true
		if got, ok := guard.Named(s.Name); !ok || got.Name != s.Name {
			t.Errorf("Named(%q) = %+v, %v", s.Name, got, ok)
		}
	}
	if _, ok := guard.Named(""); ok {
		t.Error("no name names a guard")
	}
}

func TestWebSocketsNeedGuardsThatJudgeThem(t *testing.T) {
	asked := 0
	deaf := chain(&asked, [2]guard.Verdict{allow, allow})
	v, _ := deaf.Head(&guard.Request{Method: "GET", WebSocket: true})
	if v.Why() != codes.WebSocketUninspectable || v.Stage != "guard" || asked != 0 {
		t.Errorf("head: %+v, asked %d", v, asked)
	}
	if v := deaf.Message(&guard.Message{}); v.Why() != codes.WebSocketUninspectable || v.Stage != "message" {
		t.Errorf("message: %+v", v)
	}
	json, _ := guard.Named("json")
	c := guard.Chain{json}
	if v, need := c.Head(&guard.Request{Method: "GET", WebSocket: true}); !v.Allowed() || need != nil {
		t.Errorf("json: %+v", v)
	}
	if v := c.Message(&guard.Message{Data: []byte(`{}`)}); !v.Allowed() || v.Stage != "message" {
		t.Errorf("json: %+v", v)
	}
	if v := append(c, deaf...).Message(&guard.Message{Data: []byte(`{}`)}); v.Allowed() {
		t.Error("one guard cannot judge, and the message passes")
	}
	if v := guard.Chain(nil).Message(&guard.Message{}); !v.Allowed() {
		t.Errorf("no guard: %+v", v)
	}
}

func TestJSON(t *testing.T) {
	typed := func(value string) *guard.Request {
		return &guard.Request{Method: "POST", HasBody: true, Header: httpwire.Fields{{Name: "Content-Type", Value: value}}}
	}
	for value, ok := range map[string]bool{
		"application/json": true, "Application/JSON; charset=UTF-8": true, `application/json;charset="utf-8"`: true,
		"application/problem+json": true, "application/json-patch+json": true,
		"": false, "text/plain": false, "application/json; charset=utf-16": false, "application/json; charset=utf-7": false,
		"text/json": false, "application/jsonp": false, "application/x, application/json": false, "multipart/form-data; x=application/json": false,
		"application/x-www-form-urlencoded": false, "application/json, text/plain": false, "application/a,b+json": false,
	} {
		v := guard.JSON{}.Head(typed(value))
		if (v.Answer == guard.NeedBody) != ok || !ok && v.Code != codes.ContentTypeDenied {
			t.Errorf("%q: %+v", value, v)
		}
	}
	if v := (guard.JSON{}).Head(&guard.Request{Method: "POST", HasBody: true}); v.Code != codes.ContentTypeDenied {
		t.Errorf("no type: %+v", v)
	}
	if v := (guard.JSON{}).Head(&guard.Request{Method: "GET"}); v.Answer != guard.Allow {
		t.Errorf("no body: %+v", v)
	}
	for body, code := range map[string]codes.Code{
		`{"a":[1]}`: "", ``: codes.BodyNotJSON, `{"a":1}{"a":1}`: codes.BodyNotJSON, `{"a":1,"A":2}`: codes.JSONDuplicateKey, "\ufeff{}": codes.BodyNotJSON,
	} {
		if v := (guard.JSON{}).Body(&guard.Request{Body: []byte(body)}); v.Code != code || (v.Answer == guard.Allow) != (code == "") {
			t.Errorf("body %q: %+v", body, v)
		}
		if v := (guard.JSON{}).Message(&guard.Message{Data: []byte(body)}); v.Code != code {
			t.Errorf("message %q: %+v", body, v)
		}
	}
	if v := (guard.JSON{}).Message(&guard.Message{Binary: true, Data: []byte(`{}`)}); v.Code != codes.WebSocketUninspectable {
		t.Errorf("binary: %+v", v)
	}
}

func TestReadOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		request guard.Request
		want    codes.Code // "" for allow
	}{
		"GET":               {guard.Request{Method: "GET"}, ""},
		"HEAD":              {guard.Request{Method: "HEAD"}, ""},
		"OPTIONS":           {guard.Request{Method: "OPTIONS"}, ""},
		"POST":              {guard.Request{Method: "POST"}, codes.MethodNotAllowed},
		"get in lower case": {guard.Request{Method: "get"}, codes.MethodNotAllowed},
		"TRACE":             {guard.Request{Method: "TRACE"}, codes.MethodNotAllowed},
		"CONNECT":           {guard.Request{Method: "CONNECT"}, codes.MethodNotAllowed},
		"no method":         {guard.Request{}, codes.MethodNotAllowed},
		"GET with a body":   {guard.Request{Method: "GET", HasBody: true}, codes.BodyNotAllowed},
		"a method override": {guard.Request{Method: "GET", Header: httpwire.Fields{{Name: "X-HTTP-Method-Override", Value: "DELETE"}}}, codes.HeaderInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (guard.ReadOnly{}).Head(&tc.request); got.Code != tc.want || (got.Answer == guard.Allow) != (tc.want == "") {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
		})
	}
	if v := (guard.ReadOnly{}).Body(&guard.Request{Method: "GET"}); v.Answer != guard.Deny {
		t.Errorf("Body: %+v", v)
	}
}
