package serve

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/nstf/nstf/formats"
)

// The list of models, in the words of OpenAI and of Anthropic at once.

func (s *Server) listModels(w http.ResponseWriter, r *http.Request) error {
	list := []any{}
	var ids []any
	for _, i := range s.models.List() {
		list, ids = append(list, openaiModel(i)), append(ids, i.Name)
	}
	out := map[string]any{"object": "list", "data": list, "has_more": false, "first_id": nil, "last_id": nil}
	if len(ids) > 0 {
		out["first_id"], out["last_id"] = ids[0], ids[len(ids)-1]
	}
	return writeJSON(w, out)
}

func openaiModel(i Info) map[string]any {
	return map[string]any{"id": i.Name, "object": "model", "created": i.Created.Unix(), "owned_by": "nstf",
		"type": "model", "display_name": i.Name, "created_at": i.Created.UTC().Format(time.RFC3339),
		"loaded": i.Loaded,
		"meta":   map[string]any{"arch": i.Arch, "n_params": i.Parameters, "size": i.Bytes, "bits_per_weight": i.Bits, "n_ctx": i.Context, "aliases": i.Aliases, "ledger": i.Ledger}}
}

func (s *Server) showModel(w http.ResponseWriter, r *http.Request) error {
	i, err := s.info(r.PathValue("name"))
	if err != nil {
		return err
	}
	return writeJSON(w, openaiModel(i))
}

// info returns what is known of the model of a name or alias, "" being the first one's,
// without loading it.
func (s *Server) info(name string) (Info, error) {
	for _, i := range s.models.List() {
		if name == "" || i.Name == name || slices.Contains(i.Aliases, name) {
			return i, nil
		}
	}
	return Info{}, noModel(name)
}

func noModel(name string) error {
	return &apiError{status: http.StatusNotFound, kind: "invalid_request_error", code: "model_not_found", param: "model", message: fmt.Sprintf("there is no model %q here: GET /v1/models lists what there is", formats.Brief(name, 80))}
}
