// Package client talks to a server that speaks OpenAI's chat completions: this project's
// or another's.
//
// In: a base address and messages. Out: text and reasoning as they come, and what the
// server says it took. [Measure] holds a server to a load.
//
// Invariants: a Client is immutable and safe for concurrent use. What a server sends is
// bounded before it is kept. Errors of a server are a [ServerError].
//
// Compatibility: experimental.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/nstf/nstf/formats"
)

// A Client knows a server.
type Client struct {
	// Base is its address, with or without /v1 behind it.
	Base string
	// Key is the API key; "": none.
	Key string
	// HTTP does the requests; nil: http.DefaultClient.
	HTTP *http.Client
}

// A ServerError is what a server says is wrong.
type ServerError struct {
	Status  int
	Code    string // such as context_length_exceeded; "" where it has none
	Message string
}

// Error implements error.
func (e *ServerError) Error() string {
	return fmt.Sprintf("the server says: %s (%d)", formats.Printable(formats.Brief(e.Message, 400)), e.Status)
}

// A Message is one of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// A Request asks for an answer. Fields that are nil are the server's to choose.
type Request struct {
	Model       string    `json:"model"`
	Messages    []Message `json:"messages,omitempty"`
	Prompt      []int32   `json:"prompt,omitempty"` // instead of messages: of a completion
	MaxTokens   int       `json:"max_tokens,omitempty"`
	Temperature *float64  `json:"temperature,omitempty"`
	TopP        *float64  `json:"top_p,omitempty"`
	Seed        *int64    `json:"seed,omitempty"`
	Effort      string    `json:"reasoning_effort,omitempty"`
	Stop        []string  `json:"stop,omitempty"`
	IgnoreEOS   bool      `json:"ignore_eos,omitempty"` // as vLLM's and this project's servers know it
	Stream      bool      `json:"stream"`
	Options     options   `json:"stream_options"`
}

type options struct {
	IncludeUsage bool `json:"include_usage"`
}

// A Delta is more of an answer.
type Delta struct{ Text, Reasoning string }

// A Result is what an answer took.
type Result struct {
	End          string // why it ended: stop, length, tool_calls
	PromptTokens int
	CachedTokens int
	Tokens       int           // chosen; where the server does not say, the pieces that came
	First, All   time.Duration // until the first piece, until the end
	// Pieces are when each piece came.
	Pieces []time.Duration
}

// mostLine bounds a line that a server sends, mostError an error.
const (
	mostLine  = 16 << 20
	mostError = 1 << 16
)

// root returns the address without /v1.
func (c *Client) root() string {
	return strings.TrimSuffix(strings.TrimSuffix(c.Base, "/"), "/v1")
}

func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var read io.Reader
	if body != nil {
		p, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		read = bytes.NewReader(p)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.root()+path, read)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.Key)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		p, _ := io.ReadAll(io.LimitReader(res.Body, mostError))
		return nil, serverError(res.StatusCode, p)
	}
	return res, nil
}

func serverError(status int, body []byte) *ServerError {
	var v struct {
		Error json.RawMessage `json:"error"`
	}
	var inside struct {
		Message string `json:"message"`
		Code    any    `json:"code"`
	}
	e := &ServerError{Status: status, Message: strings.TrimSpace(string(body))}
	if json.Unmarshal(body, &v) == nil && json.Unmarshal(v.Error, &inside) == nil && inside.Message != "" {
		e.Message = inside.Message
		e.Code, _ = inside.Code.(string)
	}
	if e.Message == "" {
		e.Message = http.StatusText(status)
	}
	return e
}

// A Model is one that a server has.
type Model struct {
	Name    string
	Context int // positions; 0: it does not say
}

// Models returns those that the server has.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	res, err := c.do(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var list struct {
		Data []struct {
			ID   string `json:"id"`
			Meta struct {
				Context int `json:"n_ctx"`
			} `json:"meta"`
			Context int `json:"max_model_len"` // vLLM's
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, mostLine)).Decode(&list); err != nil {
		return nil, fmt.Errorf("%s/v1/models is no list of models: %w", c.root(), err)
	}
	var all []Model
	for _, m := range list.Data {
		all = append(all, Model{m.ID, max(m.Meta.Context, m.Context)})
	}
	return all, nil
}

// Answer asks for an answer and gives what comes to emit, piece by piece, whose error
// ends it. The result is that of what came in any case.
func (c *Client) Answer(ctx context.Context, q Request, emit func(Delta) error) (Result, error) {
	path := "/v1/chat/completions"
	if q.Messages == nil {
		path = "/v1/completions"
	}
	q.Stream, q.Options.IncludeUsage = true, true
	began := time.Now()
	var r Result
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	res, err := c.do(ctx, http.MethodPost, path, &q)
	if err != nil {
		return r, err
	}
	defer res.Body.Close()
	counted := 0
	err = events(res.Body, func(data []byte) error {
		var v chunk
		if err := json.Unmarshal(data, &v); err != nil {
			return fmt.Errorf("the server sends what is no JSON: %w", err)
		}
		if len(v.Error) > 0 && string(v.Error) != "null" {
			return serverError(http.StatusInternalServerError, data)
		}
		if v.Usage != nil {
			r.PromptTokens, r.Tokens, r.CachedTokens = v.Usage.Prompt, v.Usage.Completion, v.Usage.Details.Cached
		}
		for _, one := range v.Choices {
			d := Delta{one.Delta.Content + one.Text, one.Delta.Reasoning + one.Delta.ReasoningContent}
			if one.End != "" {
				r.End = one.End
			}
			if d == (Delta{}) {
				continue
			}
			counted++
			now := time.Since(began)
			if r.First == 0 {
				r.First = now
			}
			r.Pieces = append(r.Pieces, now)
			if err := emit(d); err != nil {
				return err
			}
		}
		return nil
	})
	if r.All = time.Since(began); r.Tokens == 0 {
		r.Tokens = counted
	}
	if cause := ctx.Err(); err != nil && cause != nil {
		err = cause
	}
	return r, err
}

// A chunk is one event of a stream.
type chunk struct {
	Choices []struct {
		Delta struct {
			Content          string `json:"content"`
			Reasoning        string `json:"reasoning"`
			ReasoningContent string `json:"reasoning_content"`
		} `json:"delta"`
		Text string `json:"text"`
		End  string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// events calls f with the data of each server-sent event, until [DONE]. A stream that
// ends without is an error.
func events(r io.Reader, f func(data []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, mostLine)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if data = bytes.TrimSpace(data); !ok || len(data) == 0 {
			continue
		}
		if string(data) == "[DONE]" {
			return nil
		}
		if err := f(data); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the answer broke off: the connection ended before the stream did")
}
