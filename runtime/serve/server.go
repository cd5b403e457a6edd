package serve

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/nstf/nstf/formats"
)

// Options are the manners of a [Server].
type Options struct {
	// Keys are the API keys, one of which a request brings; none: everybody is answered.
	Keys []string
	// Origins are the web pages that may ask, for CORS; "*" stands for all.
	Origins []string
	// MaxBody bounds a request's bytes; 0: 16 MiB.
	MaxBody int64
	// MaxTokens bounds the tokens of a choice; 0: the context does.
	MaxTokens int
	// MaxChoices bounds what one request asks for at once; 0: 16.
	MaxChoices int
	// Rate is how many requests a second each key may send, Burst how many at once;
	// 0: as many as it likes.
	Rate  float64
	Burst int
	// KeepAlive is how long a stream stays silent before it says that it lives; 0: 15 s.
	KeepAlive time.Duration
	// Log takes a line for each request; nil: nobody does. LogPrompts puts prompts and
	// answers into it.
	Log        *slog.Logger
	LogPrompts bool
	// Version is the program's.
	Version string
}

func (o Options) filled() Options {
	if o.MaxBody <= 0 {
		o.MaxBody = 16 << 20
	}
	if o.MaxChoices <= 0 {
		o.MaxChoices = 16
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// A Server answers requests about models. It is safe for concurrent use.
type Server struct {
	models   Models
	o        Options
	mux      *http.ServeMux
	keys     [][sha256.Size]byte
	metrics  *metrics
	started  time.Time
	draining atomic.Bool
	underway atomic.Int64 // requests that are answered, refused ones aside

	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

// New returns a server. The models stay the caller's.
func New(models Models, o Options) *Server {
	s := &Server{models: models, o: o.filled(), mux: http.NewServeMux(), started: time.Now(), limiters: map[string]*rate.Limiter{}}
	s.metrics = newMetrics(models)
	for _, k := range o.Keys {
		s.keys = append(s.keys, sha256.Sum256([]byte(k)))
	}
	for pattern, to := range s.routes() {
		for _, name := range append(otherNames[pattern], pattern) {
			s.handle(name, to.protocol, to.answer)
		}
	}
	return s
}

// Drain has new requests refused from now on, 503 with a time to come again, and waits
// for those under way to end, or for the end of ctx, whose error it returns.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.underway.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// A protocol is whose words a path speaks; it decides how errors look.
type protocol int

const (
	openai protocol = iota
	anthropic
	ollama
)

// open are paths that need no key.
var open = map[string]bool{"/": true, "/page.js": true, "/openapi.json": true, "/health": true, "/v1/health": true, "/ready": true}

// A route is what answers a pattern of http.ServeMux, and in whose words.
type route struct {
	protocol protocol
	answer   func(w http.ResponseWriter, r *http.Request) error
}

// routes returns all there are, by their patterns.
func (s *Server) routes() map[string]route {
	return map[string]route{
		"GET /{$}":                               {openai, s.page},
		"GET /page.js":                           {openai, s.page},
		"GET /openapi.json":                      {openai, s.page},
		"GET /health":                            {openai, s.health},
		"GET /ready":                             {openai, s.ready},
		"GET /metrics":                           {openai, s.serveMetrics},
		"GET /v1/models":                         {openai, s.listModels},
		"GET /v1/models/{name...}":               {openai, s.showModel},
		"POST /v1/chat/completions":              {openai, s.chatCompletions},
		"POST /v1/completions":                   {openai, s.completions},
		"POST /v1/responses":                     {openai, s.responses},
		"POST /v1/responses/input_tokens":        {openai, s.countResponse},
		"POST /v1/chat/completions/input_tokens": {openai, s.countChat},
		"POST /tokenize":                         {openai, s.tokenize},
		"POST /detokenize":                       {openai, s.detokenize},
		"POST /apply-template":                   {openai, s.applyTemplate},
		"POST /v1/messages":                      {anthropic, s.messages},
		"POST /v1/messages/count_tokens":         {anthropic, s.countTokens},
		"GET /api/version":                       {ollama, s.ollamaVersion},
		"GET /api/tags":                          {ollama, s.ollamaTags},
		"GET /api/ps":                            {ollama, s.ollamaPS},
		"POST /api/show":                         {ollama, s.ollamaShow},
		"POST /api/chat":                         {ollama, s.ollamaChat},
		"POST /api/generate":                     {ollama, s.ollamaGenerate},
		"GET /props":                             {openai, s.props},
		"GET /slots":                             {openai, s.slots},
		"POST /completion":                       {openai, s.completion},
		"POST /v1/embeddings":                    {openai, s.embeddings},
		"POST /embedding":                        {openai, s.nativeEmbeddings},
		"POST /api/pull":                         {ollama, s.ollamaPull},
		"POST /infill":                           {openai, s.infill},
		"POST /api/embed":                        {ollama, s.ollamaEmbed},
		"POST /api/embeddings":                   {ollama, s.ollamaEmbed},
		"/": {openai, func(_ http.ResponseWriter, r *http.Request) error {
			return &apiError{status: http.StatusNotFound, kind: "not_found_error", message: fmt.Sprintf("%s %q: there is no such path here, or it takes another method", r.Method, formats.Brief(r.URL.Path, 80))}
		}},
		"/v1/messages/": {anthropic, func(_ http.ResponseWriter, r *http.Request) error {
			return &apiError{status: http.StatusNotFound, kind: "not_found_error", message: fmt.Sprintf("%s %q: there is no such path here: messages are answered one by one", r.Method, formats.Brief(r.URL.Path, 80))}
		}},
		"/api/": {ollama, func(_ http.ResponseWriter, r *http.Request) error {
			return &apiError{status: http.StatusNotFound, kind: "not_found_error", message: fmt.Sprintf("%s %q: there is no such path here: models are files that nstf serve was given", r.Method, formats.Brief(r.URL.Path, 80))}
		}},
	}
}

// otherNames are patterns that llama.cpp's server has for the same, by ours.
// Source: tools/server/README.md of llama.cpp, read 2026-11.
var otherNames = map[string][]string{
	"GET /health":                            {"GET /v1/health"},
	"GET /v1/models":                         {"GET /models"},
	"POST /v1/chat/completions":              {"POST /chat/completions"},
	"POST /v1/chat/completions/input_tokens": {"POST /chat/completions/input_tokens"},
	"POST /v1/responses":                     {"POST /responses"},
	"POST /v1/responses/input_tokens":        {"POST /responses/input_tokens"},
	"POST /completion":                       {"POST /completions"},
	"POST /embedding":                        {"POST /embeddings"},
}

// handle routes a pattern to a handler whose error becomes a response.
func (s *Server) handle(pattern string, p protocol, h func(http.ResponseWriter, *http.Request) error) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		if c, ok := w.(*counted); ok && c.status != 0 {
			c.broken = err // it is too late for another status
			return
		}
		writeError(w, p, err)
	})
}

// protocolOf returns whose words a path speaks.
func protocolOf(path string) protocol {
	switch {
	case strings.HasPrefix(path, "/v1/messages"):
		return anthropic
	case strings.HasPrefix(path, "/api/"):
		return ollama
	}
	return openai
}

// counted is a ResponseWriter that knows what it has written.
type counted struct {
	http.ResponseWriter
	status int
	bytes  int64
	broken error
}

func (c *counted) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counted) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	return n, err
}

// Unwrap serves http.ResponseController.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	id := identifier("req_")
	c := &counted{ResponseWriter: w}
	c.Header().Set("X-Request-Id", id)
	c.Header().Set("Request-Id", id)
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			s.o.Log.Error("a fault of the server", "id", id, "path", r.URL.Path, "fault", fmt.Sprint(p))
			if c.status == 0 {
				writeError(c, protocolOf(r.URL.Path), &apiError{status: http.StatusInternalServerError, kind: "server_error", message: "a fault of the server"})
			}
		}
		s.metrics.request(r.Pattern, c.status, time.Since(began))
		attributes := []any{"id", id, "method", r.Method, "path", r.URL.Path, "status", c.status, "bytes", c.bytes, "ms", time.Since(began).Milliseconds(), "from", r.RemoteAddr}
		if c.broken != nil && r.Context().Err() == nil {
			attributes = append(attributes, "error", c.broken.Error())
		}
		s.o.Log.Info("request", attributes...)
	}()
	if s.cors(c, r) {
		return
	}
	if err := s.admit(c, r); err != nil {
		writeError(c, protocolOf(r.URL.Path), err)
		return
	}
	s.underway.Add(1)
	defer s.underway.Add(-1)
	r.Body = http.MaxBytesReader(c, r.Body, s.o.MaxBody)
	if err := unpack(c, r, s.o.MaxBody); err != nil {
		writeError(c, protocolOf(r.URL.Path), err)
		return
	}
	s.mux.ServeHTTP(c, r)
}

// cors answers a preflight and says which pages may read the answer.
func (s *Server) cors(w http.ResponseWriter, r *http.Request) (done bool) {
	origin := r.Header.Get("Origin")
	if origin == "" || len(s.o.Origins) == 0 {
		return false
	}
	for _, o := range s.o.Origins {
		if o != "*" && o != origin {
			continue
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", o)
		h.Add("Vary", "Origin")
		if r.Method != http.MethodOptions {
			return false
		}
		h.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
		h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
		h.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	return false
}

// admit lets a request in, or says why not.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) error {
	if open[r.URL.Path] {
		return nil
	}
	key := givenKey(r)
	if len(s.keys) > 0 && !s.known(key) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return &apiError{status: http.StatusUnauthorized, kind: "authentication_error", code: "invalid_api_key", message: "the request brings no API key that is known here"}
	}
	if r.Method == http.MethodPost && s.draining.Load() {
		w.Header().Set("Retry-After", "5")
		return &apiError{status: http.StatusServiceUnavailable, kind: "overloaded_error", message: "the server is about to end"}
	}
	if s.o.Rate > 0 && r.Method == http.MethodPost {
		if key == "" || len(s.keys) == 0 {
			key, _, _ = net.SplitHostPort(r.RemoteAddr)
		}
		if wait := s.limit(key); wait > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(int(wait.Seconds())+1))
			return &apiError{status: http.StatusTooManyRequests, kind: "rate_limit_error", code: "rate_limit_exceeded", message: "too many requests with this key"}
		}
	}
	return nil
}

// givenKey returns the key that a request brings.
func givenKey(r *http.Request) string {
	if k, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return strings.TrimSpace(k)
	}
	return r.Header.Get("X-Api-Key")
}

// known compares with every key, in the same time whichever it is.
func (s *Server) known(key string) bool {
	sum := sha256.Sum256([]byte(key))
	found := 0
	for i := range s.keys {
		found |= subtle.ConstantTimeCompare(sum[:], s.keys[i][:])
	}
	return found == 1
}

// mostLimiters bounds the clients that are counted at once.
const mostLimiters = 10_000

// limit returns how long a client has to wait.
func (s *Server) limit(key string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limiters[key]
	if l == nil {
		if len(s.limiters) >= mostLimiters {
			clear(s.limiters)
		}
		l = rate.NewLimiter(rate.Limit(s.o.Rate), max(1, s.o.Burst))
		s.limiters[key] = l
	}
	r := l.Reserve()
	if d := r.Delay(); d > 0 {
		r.Cancel()
		return d
	}
	return 0
}

// fieldName returns the path of a field as requests spell it: without the structs that v embeds.
func fieldName(v any, path string) string {
	t := reflect.TypeOf(v).Elem()
	for t.Kind() == reflect.Struct {
		first, rest, ok := strings.Cut(path, ".")
		f, found := t.FieldByName(first)
		if !ok || !found || !f.Anonymous || f.Type.Kind() != reflect.Struct {
			break
		}
		t, path = f.Type, rest
	}
	return path
}

// jsonType names what JSON has for a type of Go.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonType(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a whole number"
}

// unpack has a body that is packed by gzip read unpacked, so many bytes at most.
func unpack(w http.ResponseWriter, r *http.Request, limit int64) error {
	switch coding := r.Header.Get("Content-Encoding"); strings.ToLower(coding) { // RFC 9110, 8.4.1
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return invalid("", "the body is said to be packed by gzip, and is not: %v", err)
		}
		r.Body = http.MaxBytesReader(w, z, limit)
	default:
		return &apiError{status: http.StatusUnsupportedMediaType, kind: "invalid_request_error", message: fmt.Sprintf("the body is packed by %q, and may be by gzip or not at all", formats.Brief(coding, 20))}
	}
	return nil
}

// readJSON decodes a request's body into v.
func readJSON(r *http.Request, v any) error {
	body, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return &apiError{status: http.StatusRequestEntityTooLarge, kind: "invalid_request_error", message: fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)}
	}
	if err != nil {
		return invalid("", "the body broke off: %v", err)
	}
	if err := shallow(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		var t *json.UnmarshalTypeError
		if errors.As(err, &t) {
			name := fieldName(v, t.Field)
			return invalid(name, "%s is of the type %s, and should be %s", cmp.Or(name, "the body"), t.Value, jsonType(t.Type))
		}
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return invalid("", "the body is no JSON: at byte %d: %v", syntax.Offset, err)
		}
		return invalid("", "the body is no JSON: %v", err)
	}
	return nil
}

// deepest is how far a body may nest.
const deepest = 128

// shallow refuses what nests deeper.
func shallow(body []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > deepest {
				return invalid("", "the body nests deeper than %d", deepest)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// identifier returns a new one.
func identifier(prefix string) string {
	var b [12]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	return writeJSON(w, map[string]string{"status": "ok"})
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	if s.draining.Load() {
		return &apiError{status: http.StatusServiceUnavailable, kind: "overloaded_error", message: "the server is about to end"}
	}
	if err := s.models.Err(); err != nil {
		return &apiError{status: http.StatusServiceUnavailable, kind: "server_error", message: err.Error()}
	}
	return writeJSON(w, map[string]string{"status": "ready"})
}

// model returns the model of a name.
func (s *Server) model(ctx context.Context, name string) (*Model, func(), error) {
	m, release, err := s.models.Get(ctx, name)
	if errors.Is(err, ErrNoModel) {
		return nil, nil, noModel(name)
	}
	if err != nil && !errors.Is(err, ErrPoolClosed) && ctx.Err() == nil { // no request is at fault
		err = &apiError{status: http.StatusInternalServerError, kind: "server_error", message: "the model cannot be loaded: " + formats.Printable(err.Error())}
	}
	return m, release, err
}

// Guard lets only those with a key to h.
func (s *Server) Guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.admit(w, r); err != nil {
			writeError(w, openai, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}
