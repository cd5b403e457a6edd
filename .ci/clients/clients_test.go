// Package clients has the official Go clients of OpenAI and Anthropic talk to `nstf serve`. It is a module of its
// own, so that nothing of theirs comes near the program's. NSTF is the program, MODEL a folder with a model.
package clients

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

const key = "a key of this test"

// template writes tools and calls as Qwen's does, which the demo's own does not.
const template = `{% if tools %}<|im_start|>system
<tools>{% for t in tools %}
{{ t | tojson }}{% endfor %}
</tools>
Call as <tool_call>
{"name": <name>, "arguments": <arguments>}
</tool_call><|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

var (
	parameters = map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string", "maxLength": 8}}, "required": []string{"city"}, "additionalProperties": false}
	schema     = map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string", "maxLength": 6}, "kind": map[string]any{"enum": []string{"x", "y"}}}, "required": []string{"name", "kind"}, "additionalProperties": false}
)

// city tells whether a call's arguments are by its parameters.
func city(arguments string) bool {
	var v struct{ City *string }
	d := json.NewDecoder(strings.NewReader(arguments))
	d.DisallowUnknownFields()
	return d.Decode(&v) == nil && v.City != nil && len([]rune(*v.City)) <= 8
}

// held says that a text is no instance of schema.
func held(t *testing.T, text string) {
	t.Helper()
	var v struct{ Name, Kind *string }
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || v.Name == nil || v.Kind == nil || *v.Kind != "x" && *v.Kind != "y" {
		t.Errorf("%q is not by the schema: %v", text, err)
	}
}

// serve starts the server for a test and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	program, model := os.Getenv("NSTF"), os.Getenv("MODEL")
	if program == "" || model == "" {
		t.Fatal("NSTF and MODEL name the program and a model's folder")
	}
	dir := t.TempDir()
	own := filepath.Join(dir, "demo")
	if err := os.CopyFS(own, os.DirFS(model)); err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(dir, "keys")
	for name, text := range map[string]string{filepath.Join(own, "chat_template.jinja"): template, keys: key + "\n"} {
		os.Remove(name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(program, "serve", own, "--listen", "127.0.0.1:0", "--keys", keys, "--device", "cpu", "--ctx", "512")
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	address := ""
	for address == "" && lines.Scan() {
		address, _ = strings.CutPrefix(lines.Text(), "listening on ")
		if !strings.HasPrefix(address, "http") {
			address = ""
		}
	}
	rest := make(chan bool)
	go func() {
		for lines.Scan() {
		}
		close(rest)
	}()
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		<-rest
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	})
	if address == "" {
		t.Fatal("the server did not begin to listen")
	}
	return address
}

func TestOpenAI(t *testing.T) {
	base, ctx := serve(t), t.Context()
	c := openai.NewClient(option.WithBaseURL(base+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
	ask := openai.ChatCompletionNewParams{Model: "demo", Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage("the quick")},
		MaxCompletionTokens: openai.Int(12), Temperature: openai.Float(0)}
	// gathered has the client put a stream together, and returns the calls that it found complete.
	gathered := func(t *testing.T, ask openai.ChatCompletionNewParams) (openai.ChatCompletion, []openai.FinishedChatCompletionToolCall) {
		t.Helper()
		ask.StreamOptions.IncludeUsage = openai.Bool(true)
		s := c.Chat.Completions.NewStreaming(ctx, ask)
		defer s.Close()
		var acc openai.ChatCompletionAccumulator
		var calls []openai.FinishedChatCompletionToolCall
		for s.Next() {
			if !acc.AddChunk(s.Current()) {
				t.Fatalf("the client does not take %s", s.Current().RawJSON())
			}
			if call, ok := acc.JustFinishedToolCall(); ok {
				calls = append(calls, call)
			}
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		return acc.ChatCompletion, calls
	}

	t.Run("models", func(t *testing.T) {
		list, err := c.Models.List(ctx)
		if err != nil || len(list.Data) != 1 || list.Data[0].ID != "demo" {
			t.Fatal(list, err)
		}
		if m, err := c.Models.Get(ctx, "demo"); err != nil || m.ID != "demo" {
			t.Fatal(m, err)
		}
	})
	t.Run("chat", func(t *testing.T) {
		ask := ask
		ask.Logprobs, ask.TopLogprobs = openai.Bool(true), openai.Int(2)
		whole, err := c.Chat.Completions.New(ctx, ask)
		if err != nil {
			t.Fatal(err)
		}
		x := whole.Choices[0]
		if x.Message.Content == "" || whole.Usage.CompletionTokens > 12 || int64(len(x.Logprobs.Content)) != whole.Usage.CompletionTokens || len(x.Logprobs.Content[0].TopLogprobs) != 2 {
			t.Errorf("%s", whole.RawJSON())
		}
		streamed, _ := gathered(t, ask)
		if y := streamed.Choices[0]; y.Message.Content != x.Message.Content || y.FinishReason != x.FinishReason || len(y.Logprobs.Content) != len(x.Logprobs.Content) ||
			streamed.Usage.CompletionTokens != whole.Usage.CompletionTokens || streamed.Usage.PromptTokens != whole.Usage.PromptTokens {
			t.Errorf("streamed %+v, whole %+v", streamed, whole)
		}
	})
	t.Run("structured", func(t *testing.T) {
		ask := ask
		ask.MaxCompletionTokens, ask.Temperature, ask.Seed = openai.Int(200), openai.Float(1), openai.Int(5)
		ask.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "s", Schema: schema, Strict: openai.Bool(true)}}
		whole, err := c.Chat.Completions.New(ctx, ask)
		if err != nil {
			t.Fatal(err)
		}
		held(t, whole.Choices[0].Message.Content)
		streamed, _ := gathered(t, ask)
		held(t, streamed.Choices[0].Message.Content)
	})
	t.Run("tools", func(t *testing.T) {
		ask := ask
		ask.MaxCompletionTokens, ask.Temperature, ask.Seed = openai.Int(100), openai.Float(1), openai.Int(1)
		ask.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "weather", Description: openai.String("of a city"), Parameters: parameters})}
		ask.ParallelToolCalls, ask.ToolChoice.OfAuto = openai.Bool(false), openai.String("required") // the model has not learnt to call by itself
		whole, err := c.Chat.Completions.New(ctx, ask)
		if err != nil {
			t.Fatal(err)
		}
		x := whole.Choices[0]
		if x.FinishReason != "tool_calls" || len(x.Message.ToolCalls) != 1 || x.Message.ToolCalls[0].Function.Name != "weather" || !city(x.Message.ToolCalls[0].Function.Arguments) || x.Message.ToolCalls[0].ID == "" {
			t.Fatalf("%s", whole.RawJSON())
		}
		streamed, calls := gathered(t, ask)
		if len(calls) != 1 || calls[0].Name != "weather" || calls[0].ID == "" || calls[0].Arguments != x.Message.ToolCalls[0].Function.Arguments || streamed.Choices[0].FinishReason != "tool_calls" {
			t.Errorf("%+v of %s", calls, streamed.RawJSON())
		}
		// The next turn, with the call as the client hands it back and what came of it.
		ask.ToolChoice.OfAuto = openai.String("none")
		ask.Messages = append(slices.Clone(ask.Messages), x.Message.ToParam(), openai.ToolMessage("rain", x.Message.ToolCalls[0].ID))
		next, err := c.Chat.Completions.New(ctx, ask)
		if err != nil || len(next.Choices[0].Message.ToolCalls) > 0 {
			t.Error(next, err)
		}
	})
	t.Run("completions", func(t *testing.T) {
		ask := openai.CompletionNewParams{Model: "demo", Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"the old", "the old"}}, MaxTokens: openai.Int(6), Temperature: openai.Float(0)}
		whole, err := c.Completions.New(ctx, ask)
		if err != nil || len(whole.Choices) != 2 || whole.Choices[0].Text == "" || whole.Choices[0].Text != whole.Choices[1].Text {
			t.Fatal(whole, err)
		}
		s := c.Completions.NewStreaming(ctx, ask)
		text := ""
		for s.Next() {
			for _, x := range s.Current().Choices {
				text += x.Text
			}
		}
		if s.Err() != nil || text != whole.Choices[0].Text+whole.Choices[1].Text {
			t.Error(text, s.Err())
		}
	})
	t.Run("responses", func(t *testing.T) {
		ask := responses.ResponseNewParams{Model: "demo", Instructions: openai.String("Be brief."), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("the quick")}, MaxOutputTokens: openai.Int(12), Temperature: openai.Float(0)}
		whole, err := c.Responses.New(ctx, ask)
		if err != nil || whole.OutputText() == "" || whole.Usage.OutputTokens == 0 {
			t.Fatal(whole, err)
		}
		streamed := func(ask responses.ResponseNewParams) (text, arguments string, last responses.Response) {
			s := c.Responses.NewStreaming(ctx, ask)
			defer s.Close()
			for n := int64(0); s.Next(); n++ {
				e := s.Current()
				if e.SequenceNumber != n {
					t.Errorf("event %d is numbered %d", n, e.SequenceNumber)
				}
				switch e.Type {
				case "response.output_text.delta":
					text += e.AsResponseOutputTextDelta().Delta
				case "response.function_call_arguments.delta":
					arguments += e.AsResponseFunctionCallArgumentsDelta().Delta
				case "response.completed", "response.incomplete":
					last = e.Response
				}
			}
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			return text, arguments, last
		}
		if text, _, last := streamed(ask); text != whole.OutputText() || last.OutputText() != text || last.Usage.OutputTokens != whole.Usage.OutputTokens || last.Status != whole.Status {
			t.Errorf("%q of %s, whole %s", text, last.RawJSON(), whole.RawJSON())
		}
		by := ask
		by.MaxOutputTokens, by.Temperature = openai.Int(200), openai.Float(1)
		by.Text.Format.OfJSONSchema = &responses.ResponseFormatTextJSONSchemaConfigParam{Name: "s", Schema: schema, Strict: openai.Bool(true)}
		whole, err = c.Responses.New(ctx, by)
		if err != nil {
			t.Fatal(err)
		}
		held(t, whole.OutputText())
		tool := ask
		tool.MaxOutputTokens = openai.Int(100)
		tool.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction("weather", parameters, true)}
		tool.ParallelToolCalls, tool.ToolChoice.OfToolChoiceMode = openai.Bool(false), openai.Opt(responses.ToolChoiceOptionsRequired)
		whole, err = c.Responses.New(ctx, tool)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(whole.Output, func(o responses.ResponseOutputItemUnion) bool { return o.Type == "function_call" })
		if at < 0 {
			t.Fatalf("no call in %s", whole.RawJSON())
		}
		call := whole.Output[at].AsFunctionCall()
		if _, arguments, last := streamed(tool); call.Name != "weather" || !city(call.Arguments) || arguments != call.Arguments || len(last.Output) != len(whole.Output) {
			t.Errorf("%q of %s, whole %s", arguments, last.RawJSON(), whole.RawJSON())
		}
		tool.ToolChoice.OfToolChoiceMode = openai.Opt(responses.ToolChoiceOptionsAuto)
		tool.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: []responses.ResponseInputItemUnionParam{responses.ResponseInputItemParamOfMessage("the quick", responses.EasyInputMessageRoleUser),
			responses.ResponseInputItemParamOfFunctionCall(call.Arguments, call.CallID, call.Name), {OfFunctionCallOutput: &responses.ResponseInputItemFunctionCallOutputParam{CallID: call.CallID, Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: openai.String("rain")}}}}}
		if next, err := c.Responses.New(ctx, tool); err != nil || next.Usage.InputTokens <= whole.Usage.InputTokens {
			t.Error(next, err)
		}
	})
	t.Run("errors", func(t *testing.T) {
		long, none, hot := ask, ask, ask
		long.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("word ", 2000))}
		none.Messages = []openai.ChatCompletionMessageParamUnion{}
		hot.Temperature = openai.Float(-1)
		for _, w := range []struct {
			ask    openai.ChatCompletionNewParams
			o      option.RequestOption
			status int
			code   string
		}{
			{long, option.WithMaxRetries(0), 400, "context_length_exceeded"},
			{none, option.WithMaxRetries(0), 400, ""},
			{hot, option.WithMaxRetries(0), 400, ""},
			{ask, option.WithAPIKey("wrong"), 401, "invalid_api_key"},
			{ask, option.WithJSONSet("n", 99), 400, ""},
		} {
			_, err := c.Chat.Completions.New(ctx, w.ask, w.o)
			var e *openai.Error
			if !errors.As(err, &e) || e.StatusCode != w.status || e.Code != w.code || e.Message == "" || e.Type == "" {
				t.Errorf("%v, want %d %s", err, w.status, w.code)
			}
		}
		var e *openai.Error
		if _, err := c.Models.Get(ctx, "none"); !errors.As(err, &e) || e.StatusCode != http.StatusNotFound || e.Code != "model_not_found" {
			t.Error(err)
		}
	})
}

func TestAnthropic(t *testing.T) {
	base, ctx := serve(t), t.Context()
	c := anthropic.NewClient(anthropicoption.WithBaseURL(base), anthropicoption.WithAPIKey(key), anthropicoption.WithMaxRetries(0))
	ask := anthropic.MessageNewParams{Model: "demo", MaxTokens: 12, System: []anthropic.TextBlockParam{{Text: "Be brief."}}, Temperature: anthropic.Float(0),
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("the quick"))}}
	gathered := func(t *testing.T, ask anthropic.MessageNewParams) anthropic.Message {
		t.Helper()
		s := c.Messages.NewStreaming(ctx, ask)
		defer s.Close()
		var m anthropic.Message
		for s.Next() {
			if err := m.Accumulate(s.Current()); err != nil {
				t.Fatal(err)
			}
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		return m
	}

	t.Run("models", func(t *testing.T) {
		list, err := c.Models.List(ctx, anthropic.ModelListParams{})
		if err != nil || len(list.Data) != 1 || list.Data[0].ID != "demo" || list.Data[0].DisplayName == "" || list.Data[0].CreatedAt.IsZero() || list.HasMore {
			t.Fatal(list, err)
		}
	})
	t.Run("messages", func(t *testing.T) {
		whole, err := c.Messages.New(ctx, ask)
		if err != nil || len(whole.Content) != 1 || whole.Content[0].AsText().Text == "" {
			t.Fatal(whole, err)
		}
		m := gathered(t, ask)
		if len(m.Content) != 1 || m.Content[0].Text != whole.Content[0].Text || m.StopReason != whole.StopReason || m.Usage.OutputTokens != whole.Usage.OutputTokens {
			t.Errorf("streamed %s, whole %s", m.RawJSON(), whole.RawJSON())
		}
		n, err := c.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: ask.Model, Messages: ask.Messages, System: anthropic.MessageCountTokensParamsSystemUnion{OfTextBlockArray: ask.System}})
		if err != nil || n.InputTokens != whole.Usage.InputTokens+whole.Usage.CacheReadInputTokens {
			t.Error(n, err, whole.Usage)
		}
		words := strings.Fields(whole.Content[0].Text)
		cut := ask
		cut.StopSequences = []string{words[len(words)-1]}
		if m, err := c.Messages.New(ctx, cut); err != nil || m.StopReason != anthropic.StopReasonStopSequence || m.StopSequence != cut.StopSequences[0] {
			t.Error(m, err)
		}
	})
	t.Run("structured", func(t *testing.T) {
		ask := ask
		ask.MaxTokens, ask.Temperature = 200, anthropic.Float(1)
		ask.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: schema}
		m, err := c.Messages.New(ctx, ask)
		if err != nil {
			t.Fatal(err)
		}
		held(t, m.Content[0].Text)
	})
	t.Run("tools", func(t *testing.T) {
		ask := ask
		ask.MaxTokens = 100
		ask.Tools = []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: parameters["properties"], Required: []string{"city"}, ExtraFields: map[string]any{"additionalProperties": false}}, "weather")}
		ask.ToolChoice.OfAny = &anthropic.ToolChoiceAnyParam{DisableParallelToolUse: anthropic.Bool(true)}
		for _, m := range []func() (*anthropic.Message, error){
			func() (*anthropic.Message, error) { return c.Messages.New(ctx, ask) },
			func() (*anthropic.Message, error) { m := gathered(t, ask); return &m, nil },
		} {
			m, err := m()
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(m.Content, func(b anthropic.ContentBlockUnion) bool { return b.Type == "tool_use" })
			if at < 0 || m.StopReason != anthropic.StopReasonToolUse {
				t.Fatalf("no call in %+v", m)
			}
			call := m.Content[at].AsToolUse()
			if call.Name != "weather" || !city(string(call.Input)) || call.ID == "" {
				t.Errorf("%+v", call)
			}
			next := ask
			next.ToolChoice = anthropic.ToolChoiceUnionParam{}
			next.Messages = append(slices.Clone(ask.Messages), m.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(call.ID, "rain", false)))
			if n, err := c.Messages.New(ctx, next); err != nil || n.Usage.InputTokens+n.Usage.CacheReadInputTokens <= m.Usage.InputTokens+m.Usage.CacheReadInputTokens {
				t.Error(n, err)
			}
		}
	})
	t.Run("errors", func(t *testing.T) {
		long, none := ask, ask
		long.Messages = []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(strings.Repeat("word ", 2000)))}
		none.Messages = []anthropic.MessageParam{}
		for _, w := range []struct {
			ask    anthropic.MessageNewParams
			o      anthropicoption.RequestOption
			status int
			kind   anthropic.ErrorType
		}{
			{long, anthropicoption.WithMaxRetries(0), 400, anthropic.ErrorTypeInvalidRequestError},
			{none, anthropicoption.WithMaxRetries(0), 400, anthropic.ErrorTypeInvalidRequestError},
			{ask, anthropicoption.WithAPIKey("wrong"), 401, anthropic.ErrorTypeAuthenticationError},
			{ask, anthropicoption.WithJSONSet("max_tokens", 0), 400, anthropic.ErrorTypeInvalidRequestError},
		} {
			_, err := c.Messages.New(ctx, w.ask, w.o)
			var e *anthropic.Error
			if !errors.As(err, &e) || e.StatusCode != w.status || e.Type() != w.kind || e.RequestID == "" {
				t.Errorf("%v, want %d %s", err, w.status, w.kind)
			}
		}
	})
}
