package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nstf/nstf/formats"
)

type rawJSON = json.RawMessage

// errUnsupported marks a feature that is named but not implemented; the
// reader that knows the file turns it into a [formats.UnsupportedError].
type errUnsupported string

func (e errUnsupported) Error() string { return string(e) }

func unsupported(format string, args ...any) error {
	return errUnsupported(fmt.Sprintf(format, args...))
}

// located wraps err as the module's error for a part of a file.
func located(file, part string, err error) error {
	var u errUnsupported
	var fe *formats.FormatError
	var ue *formats.UnsupportedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fe), errors.As(err, &ue):
		return err
	case errors.As(err, &u):
		return formats.Unsupportedf(file, part, "%s", string(u))
	}
	return formats.Errorf(file, part, "%v", err)
}

func isNull(raw []byte) bool {
	t := bytes.TrimSpace(raw)
	return len(t) == 0 || string(t) == "null"
}

// typeOf returns the "type" of a stage's object, or "" for null.
func typeOf(raw []byte) (string, error) {
	if isNull(raw) {
		return "", nil
	}
	var t struct{ Type *string }
	if err := json.Unmarshal(raw, &t); err != nil {
		return "", err
	}
	if t.Type == nil || *t.Type == "" {
		return "", fmt.Errorf("a stage lacks its \"type\": %s", clip(raw))
	}
	return *t.Type, nil
}

// strict decodes an object whose every key must be known: an option that this
// package does not know may change the ids.
func strict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err != nil && strings.Contains(err.Error(), "unknown field") {
		return unsupported("%s in %s", strings.TrimPrefix(err.Error(), "json: "), clip(raw))
	}
	return err
}

// snake removes the underscores of an object's keys, so that encoding/json
// finds Go fields (it ignores case) without a tag on each.
func snake(raw []byte) []byte {
	var m map[string]rawJSON
	if json.Unmarshal(raw, &m) != nil {
		return raw
	}
	out := make(map[string]rawJSON, len(m))
	for k, v := range m {
		out[strings.ReplaceAll(k, "_", "")] = v
	}
	b, err := json.Marshal(out)
	if err != nil {
		return raw
	}
	return b
}

// clip quotes the beginning of a value for an error message.
func clip(raw []byte) string {
	const most = 120
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + "..."
	}
	return string(raw)
}
