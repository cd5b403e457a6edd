package serve

import (
	"encoding/json"
	"strings"
	"testing"
)

// The description has every path that programs ask, and no other.
func TestDescription(t *testing.T) {
	p, err := pages.ReadFile("page/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(p, &d); err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for path, methods := range d.Paths {
		for m := range methods {
			described[strings.ToUpper(m)+" "+path] = true
		}
	}
	s := &Server{}
	routed := map[string]bool{}
	for pattern := range s.routes() {
		pattern = strings.Replace(pattern, "{name...}", "{name}", 1)
		switch pattern {
		case "GET /{$}", "GET /page.js", "GET /openapi.json", "GET /metrics", "/", "/api/", "/v1/messages/":
			continue
		}
		routed[pattern] = true
		if !described[pattern] {
			t.Errorf("%s is not described", pattern)
		}
	}
	for path, methods := range d.Paths {
		if post := string(methods["post"]); strings.Contains(post, `"stream": {`) && !strings.Contains(post, `"text/event-stream"`) && !strings.Contains(post, `"application/x-ndjson"`) {
			t.Errorf("what %s streams is not described", path)
		}
	}
	for pattern := range described {
		if !routed[pattern] {
			t.Errorf("%s is described and not there", pattern)
		}
	}
}
