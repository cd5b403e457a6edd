package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// A stream writes an answer as it comes: server-sent events, or a line of JSON each.
type stream struct {
	mu    sync.Mutex
	p     protocol // of OpenAI and Anthropic: events; of Ollama: lines
	w     http.ResponseWriter
	c     *http.ResponseController
	begun bool
	last  time.Time
	stop  func()
}

// alive is what a stream says to show that it lives; lines have no word for that.
var alive = map[protocol]string{openai: ": alive\n\n", anthropic: "event: ping\ndata: {\"type\": \"ping\"}\n\n"}

// stream returns the stream of an answer, which keeps silent for Options.KeepAlive at
// most. The caller closes it.
func (srv *Server) stream(w http.ResponseWriter, r *http.Request, p protocol) *stream {
	s := &stream{p: p, w: w, c: http.NewResponseController(w)}
	ctx, cancel := context.WithCancel(r.Context())
	s.stop = cancel
	keepAlive, says := srv.o.KeepAlive, []byte(alive[p])
	if len(says) == 0 {
		return s
	}
	go func() {
		tick := time.NewTicker(keepAlive)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.mu.Lock()
				if ctx.Err() == nil && s.begun && time.Since(s.last) >= keepAlive/2 {
					s.w.Write(says)
					s.c.Flush()
				}
				s.mu.Unlock()
			}
		}
	}()
	return s
}

// start sends the headers.
func (s *stream) start() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	if s.p == ollama {
		h.Set("Content-Type", "application/x-ndjson")
	}
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // of proxies such as nginx
	s.w.WriteHeader(http.StatusOK)
}

// send writes an event; name is "" for those without.
func (s *stream) send(name string, v any) error {
	var b bytes.Buffer
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	if s.p != ollama {
		b.WriteString("data: ")
	}
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	if s.p != ollama {
		b.WriteString("\n")
	}
	return s.write(b.Bytes())
}

// fail tells of an error behind the beginning, and returns it in any case.
func (s *stream) fail(err error) error {
	if !s.begun {
		return err
	}
	name := ""
	if s.p == anthropic {
		name = "error"
	}
	s.send(name, explain(err).body(s.p, s.w.Header().Get("Request-Id")))
	return err
}

// done writes OpenAI's last line.
func (s *stream) done() error { return s.write([]byte("data: [DONE]\n\n")) }

func (s *stream) write(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start()
	s.last = time.Now()
	if _, err := s.w.Write(p); err != nil {
		return err
	}
	return s.c.Flush()
}

// close ends the stream; what comes of it later writes nothing.
func (s *stream) close() {
	s.stop()
	s.mu.Lock()
	s.begun = true
	s.mu.Unlock()
}
