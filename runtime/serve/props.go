package serve

import (
	"net/http"
)

// What llama.cpp's server tells of itself.
// Source: tools/server/README.md of llama.cpp, GET /props and /slots, read 2026-11.

// named returns the model that a request names behind its path.
func (s *Server) named(r *http.Request) (*Model, func(), error) {
	return s.model(r.Context(), r.URL.Query().Get("model"))
}

func (s *Server) props(w http.ResponseWriter, r *http.Request) error {
	m, release, err := s.named(r)
	if err != nil {
		return err
	}
	defer release()
	spelled := func(id int32, ok bool) string {
		if !ok {
			return ""
		}
		text, _ := m.Tokenizer.Piece(id)
		return text
	}
	o := settings{n: 1, sampling: m.Sampling}
	return writeJSON(w, map[string]any{
		"default_generation_settings": map[string]any{"params": nativeSettings(&o), "n_ctx": m.Context},
		"total_slots":                 m.Parallel, "model_alias": m.Name, "model_path": m.Path,
		"chat_template": m.Tokenizer.ChatTemplates()["default"], "bos_token": spelled(m.Tokenizer.BOS()), "eos_token": spelled(m.Tokenizer.EOS()),
		"modalities": map[string]bool{"vision": false, "audio": false}, "build_info": "nstf-" + s.o.Version,
	})
}

// slots tells of choices that are computed as if each had a place of its own. With
// ?fail_on_no_slot=1 it fails where all conversations of full length are taken. It loads
// nothing.
func (s *Server) slots(w http.ResponseWriter, r *http.Request) error {
	i, err := s.info(r.URL.Query().Get("model"))
	if err != nil {
		return err
	}
	running := 0
	if all, ok := s.models.(scheduling); ok {
		if one := all.Schedulers()[i.Name]; one != nil {
			running = one.Metrics().Running
		}
	}
	if running >= i.Parallel && r.URL.Query().Get("fail_on_no_slot") != "" {
		return &apiError{status: http.StatusServiceUnavailable, kind: "unavailable_error", message: "no slot is free"}
	}
	all := []any{}
	for k := range max(running, i.Parallel) {
		all = append(all, map[string]any{"id": k, "n_ctx": i.Context, "is_processing": k < running})
	}
	return writeJSON(w, all)
}
