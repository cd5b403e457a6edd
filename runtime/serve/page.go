package serve

import (
	"embed"
	"net/http"
)

// A page to talk to the models, whole in itself, and the paths' description for programs.
//
//go:embed page
var pages embed.FS

// page serves it. It holds nothing that needs a key: what it asks for does.
func (s *Server) page(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	name := "page/index.html"
	switch r.URL.Path {
	case "/page.js":
		name = "page/page.js"
	case "/openapi.json":
		name = "page/openapi.json"
	}
	http.ServeFileFS(w, r, pages, name)
	return nil
}
