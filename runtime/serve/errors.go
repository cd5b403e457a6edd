package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/schedule"
)

// An apiError is what a client is told.
type apiError struct {
	status  int
	kind    string // of Anthropic's and OpenAI's types
	code    string
	param   string
	message string
}

func (e *apiError) Error() string { return e.message }

// invalid says that a request is at fault; param is the field, "" for none.
func invalid(param, format string, args ...any) error {
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", param: param, message: fmt.Sprintf(format, args...)}
}

// explain turns any error into what a client is told.
func explain(err error) *apiError {
	var e *apiError
	var full *exec.ContextFullError
	var format *formats.FormatError
	var unsupported *formats.UnsupportedError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &full):
		return &apiError{http.StatusBadRequest, "invalid_request_error", "context_length_exceeded", "messages",
			fmt.Sprintf("the prompt has %d tokens, and the context %d positions", full.Used+full.New, full.Capacity)}
	case errors.Is(err, schedule.ErrBusy):
		return &apiError{status: http.StatusTooManyRequests, kind: "rate_limit_error", message: err.Error()}
	case errors.Is(err, schedule.ErrClosed), errors.Is(err, ErrPoolClosed):
		return &apiError{status: http.StatusServiceUnavailable, kind: "overloaded_error", message: err.Error()}
	case errors.As(err, &format), errors.As(err, &unsupported):
		return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", message: formats.Printable(err.Error())}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &apiError{status: 499, kind: "server_error", message: "the request was ended"}
	}
	return &apiError{status: http.StatusInternalServerError, kind: "server_error", message: formats.Printable(err.Error())}
}

// body returns an error in a protocol's shape.
func (e *apiError) body(p protocol, id string) any {
	switch p {
	case anthropic:
		kind := e.kind
		switch {
		case e.status == http.StatusNotFound:
			kind = "not_found_error"
		case kind == "server_error":
			kind = "api_error"
		case e.status == http.StatusRequestEntityTooLarge:
			kind = "request_too_large"
		}
		return map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": e.message}, "request_id": id}
	case ollama:
		return map[string]any{"error": e.message}
	}
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return map[string]any{"error": map[string]any{"message": e.message, "type": e.kind, "param": orNull(e.param), "code": orNull(e.code)}}
}

func writeError(w http.ResponseWriter, p protocol, err error) {
	e := explain(err)
	w.Header().Set("Content-Type", "application/json")
	if e.status == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(e.status)
	json.NewEncoder(w).Encode(e.body(p, w.Header().Get("Request-Id")))
}
