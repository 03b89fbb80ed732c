// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package siem writes entries of the record in the forms that security
// information systems take: OCSF (version [OCSFVersion]) and CEF.
//
// Neither form proves anything: an event names its record by series and number
// ("proxy/123"), and the proof of that record goes beside. What agents wrote is
// escaped by the rules of the form and holds no character that acts on a
// terminal. Everything here is pure and may be used by many goroutines.
package siem

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"bawn/internal/audit"
	"bawn/internal/verdict"
	"bawn/internal/wirejson"
)

// OCSFVersion is the version of the schema that events are of.
const OCSFVersion = "1.9.0"

// A Source says what entries come from.
type Source struct {
	Series  string // whose records these are
	Version string // of Bawn
}

func (s Source) uid(seq uint64) string { return s.Series + "/" + strconv.FormatUint(seq, 10) }

// The classes of OCSF that entries become.
const (
	baseEvent       = 0
	networkActivity = 4001
	httpActivity    = 4002
	dnsActivity     = 4003
	apiActivity     = 6003
)

var classNames = map[int]string{
	baseEvent: "Base Event", networkActivity: "Network Activity", httpActivity: "HTTP Activity",
	dnsActivity: "DNS Activity", apiActivity: "API Activity",
}

var categoryNames = map[int]string{0: "Uncategorized", 4: "Network Activity", 6: "Application Activity"}

type object = map[string]any

// OCSF gives an entry as one JSON object of OCSF, without a newline.
func OCSF(e audit.Entry, src Source) ([]byte, error) {
	ev := event(e, src)
	prune(ev)
	text, err := json.Marshal(ev)
	return wirejson.ASCII(text), err
}

func event(e audit.Entry, src Source) object {
	switch {
	case e.Decision != nil:
		return decision(e, src)
	case e.Summary != nil:
		return summary(e.Summary, src)
	case e.Act != nil:
		return act(e, src)
	case e.Gap != nil:
		ev := header(baseEvent, 99, e.Gap.Time, 4, src, e.Gap.Seq, "")
		ev["message"] = "the journal could not be written: " + e.Gap.Error
		ev["count"] = e.Gap.Refused
		return ev
	}
	ev := header(baseEvent, 99, time.Time{}, 4, src, 0, "")
	if e.Damage != nil {
		ev["message"] = "damaged line in " + e.Damage.File + " at byte " + strconv.FormatInt(e.Damage.Offset, 10)
	}
	return ev
}

// header is what every event has.
func header(class, activity int, at time.Time, severity int, src Source, seq uint64, request string) object {
	category := class / 1000
	ev := object{
		"category_uid": category, "category_name": categoryNames[category],
		"class_uid": class, "class_name": classNames[class],
		"activity_id": activity, "type_uid": class*100 + activity, "severity_id": severity,
		"metadata": object{
			"version": OCSFVersion, "product": object{"name": "Bawn", "vendor_name": "Bawn", "version": src.Version},
			"uid": src.uid(seq), "sequence": seq, "log_name": src.Series, "correlation_uid": request,
		},
	}
	if !at.IsZero() {
		ev["time"] = at.UnixMilli()
		ev["metadata"].(object)["original_time"] = at.UTC().Format(time.RFC3339Nano)
	} else {
		ev["time"] = int64(0)
	}
	return ev
}

// httpActivities are activity_id by method, in HTTP Activity.
var httpActivities = map[string]int{
	"CONNECT": 1, "DELETE": 2, "GET": 3, "HEAD": 4, "OPTIONS": 5, "POST": 6, "PUT": 7, "TRACE": 8, "PATCH": 9,
}

func decision(e audit.Entry, src Source) object {
	d, o := e.Decision, e.Outcome
	class, activity := classOf(d)
	severity := 1 // informational
	if d.Verdict == verdict.Deny {
		severity = 2 // low
	}
	if d.Sensitive {
		severity = 3 // medium
	}
	ev := header(class, activity, d.Time, severity, src, d.Seq, d.Request)
	meta := ev["metadata"].(object)
	meta["profiles"] = []string{"security_control", "ai_operation"}
	meta["event_code"] = string(d.Code)
	if class == httpActivity && activity == 99 {
		ev["activity_name"] = d.Method
	}
	control(ev, d.Verdict)
	ev["status_detail"] = d.Detail
	ev["status_code"] = string(d.Code)
	ev["firewall_rule"] = object{"uid": d.Rule, "type": d.Stage}
	ev["policy"] = object{"uid": strconv.FormatUint(d.Revision, 10)}
	ev["src_endpoint"] = source(d.Agent, d.User, d.Client)
	ev["ai_agent"] = object{"uid": d.Agent, "name": d.Agent, "instance_uid": d.Session}
	ev["dst_endpoint"] = object{"hostname": host(d), "port": int(d.Port)}
	ev["unmapped"] = object{
		"slot": d.Slot, "generation": d.Gen.String(), "plane": d.Plane, "arrival": d.Arrival, "inspect": d.Inspect, "proto": d.Proto,
		"sni": d.SNI, "query_sha256": d.Query, "credential": d.Credential, "message": d.Message,
	}
	switch class {
	case httpActivity:
		ev["http_request"] = request(d)
	case dnsActivity:
		ev["query"] = object{"hostname": host(d), "type": d.Method}
		ev["rcode_id"] = 0
		if d.Verdict == verdict.Deny {
			ev["rcode_id"] = 5 // refused
		}
	}
	if o != nil {
		outcome(ev, o, src)
	}
	return ev
}

func classOf(d *audit.Decision) (class, activity int) {
	switch {
	case d.Proto == "dns":
		return dnsActivity, 1 // query
	case d.Method != "":
		if n := httpActivities[d.Method]; n > 0 {
			return httpActivity, n
		}
		return httpActivity, 99
	case d.Verdict == verdict.Deny:
		return networkActivity, 5 // refuse
	}
	return networkActivity, 6 // traffic
}

func host(d *audit.Decision) string {
	if d.Host != "" {
		return d.Host
	}
	return d.Asked
}

func source(agent, user, client string) object {
	ep := object{"name": agent, "owner": object{"name": user}}
	address(ep, client)
	return ep
}

// address sets ip and port of an endpoint.
func address(ep object, text string) {
	if a, err := netip.ParseAddrPort(text); err == nil {
		ep["ip"] = a.Addr().String()
		ep["port"] = int(a.Port())
	}
}

// control sets the attributes of profile security_control.
func control(ev object, v verdict.Effect) {
	switch v {
	case verdict.Allow:
		ev["action_id"], ev["action"], ev["disposition_id"], ev["disposition"] = 1, "Allowed", 1, "Allowed"
	case verdict.Ask:
		ev["action_id"], ev["action"], ev["disposition_id"], ev["disposition"] = 0, "Unknown", 14, "Delayed"
	default:
		ev["action_id"], ev["action"], ev["disposition_id"], ev["disposition"] = 2, "Denied", 2, "Blocked"
	}
}

func request(d *audit.Decision) object {
	return object{
		"uid": d.Request, "http_method": d.Method,
		"url": object{"scheme": d.Scheme, "hostname": host(d), "port": int(d.Port), "path": d.Path, "url_string": urlOf(d)},
	}
}

// urlOf is what was asked for, without the query, which is not on record.
func urlOf(d *audit.Decision) string {
	h := host(d)
	if d.Port != 0 && d.Port != 443 && (d.Port != 80 || d.Scheme != "http") && d.Host != "" {
		h += ":" + strconv.Itoa(int(d.Port))
	}
	if d.Scheme == "" {
		return h + d.Path
	}
	return d.Scheme + "://" + h + d.Path
}

func outcome(ev object, o *audit.Outcome, src Source) {
	ev["traffic"] = object{"bytes_out": o.BytesUp, "bytes_in": o.BytesDown, "bytes": o.BytesUp + o.BytesDown}
	ev["duration"] = time.Duration(o.Total).Milliseconds()
	ev["end_time"] = o.Time.UnixMilli()
	address(ev["dst_endpoint"].(object), o.Upstream)
	ev["status_id"], ev["status"] = 1, "Success"
	if o.Error != "" || o.Code != "" || o.Cut != "" {
		ev["status_id"], ev["status"] = 2, "Failure"
		ev["status_detail"] = strings.TrimSpace(o.Error + " " + o.Cut)
	}
	if o.Code != "" {
		ev["status_code"] = string(o.Code)
	}
	if ev["class_uid"] == httpActivity && o.Status != 0 {
		ev["http_response"] = object{"code": o.Status}
	}
	ev["unmapped"].(object)["outcome"] = src.uid(o.Seq)
}

func summary(s *audit.Summary, src Source) object {
	ev := header(networkActivity, 5, s.From, 2, src, s.Seq, "")
	ev["metadata"].(object)["profiles"] = []string{"security_control", "ai_operation"}
	control(ev, verdict.Deny)
	ev["count"], ev["start_time"], ev["end_time"] = s.Denials, s.From.UnixMilli(), s.To.UnixMilli()
	ev["message"] = "denials beyond the agent's record budget, without records of their own"
	ev["src_endpoint"] = source(s.Agent, s.User, "")
	ev["ai_agent"] = object{"uid": s.Agent, "name": s.Agent, "instance_uid": s.Session}
	ev["unmapped"] = object{"codes": s.Codes, "slot": s.Slot, "generation": s.Gen.String(), "plane": s.Plane}
	return ev
}

// actActivities are activity_id of API Activity; what is not here is other.
func actActivity(n audit.ActName) (int, string) {
	_, verb, _ := strings.Cut(string(n), ".")
	switch verb {
	case "create", "add", "make", "sign":
		return 1, ""
	case "export":
		return 2, ""
	case "apply", "rollback", "restore", "migrate":
		return 3, ""
	case "remove", "pruned":
		return 4, ""
	}
	return 99, verb
}

func act(e audit.Entry, src Source) object {
	a, r := e.Act, e.Result
	if r == nil {
		r = a
	}
	activity, name := actActivity(a.Name)
	ev := header(apiActivity, activity, a.Time, 1, src, a.Seq, a.ID)
	ev["activity_name"] = name
	uid := strconv.FormatUint(uint64(a.UID), 10)
	ev["actor"] = object{"user": object{"name": a.Account, "uid": uid}, "process": object{"pid": a.PID}}
	ev["api"] = object{"operation": string(a.Name), "service": object{"name": "bawn admin"}}
	ev["src_endpoint"] = object{"name": "admin.sock"}
	ev["resources"] = []object{{"name": r.Object, "type": strings.SplitN(string(a.Name), ".", 2)[0]}}
	ev["policy"] = object{"uid": strconv.FormatUint(r.Revision, 10)}
	ev["message"] = a.Detail
	ev["status_id"], ev["status"] = 0, "Unknown"
	switch r.Result {
	case audit.ActDone:
		ev["status_id"], ev["status"] = 1, "Success"
	case audit.ActRefused, audit.ActFailed:
		ev["status_id"], ev["status"] = 2, "Failure"
	}
	ev["status_code"], ev["status_detail"] = string(r.Code), r.Error
	ev["unmapped"] = object{"agent": r.Agent, "user": r.User, "offered_sha256": a.Offered, "policy_sha256": r.Policy, "revision_before": a.Revision}
	return ev
}

// prune takes out what is empty, but for the numbers that an event must have.
func prune(o object) {
	for k, v := range o {
		switch v := v.(type) {
		case string:
			if v == "" {
				delete(o, k)
			}
		case object:
			prune(v)
			if len(v) == 0 {
				delete(o, k)
			}
		case int:
			if v == 0 && (k == "port" || k == "count") {
				delete(o, k)
			}
		case int64:
			if v == 0 && k == "message" {
				delete(o, k)
			}
		}
	}
}
