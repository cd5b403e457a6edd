package hub

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
)

// A File is one file of a repository at a commit.
type File struct {
	Path string // in the repository, with slashes
	Size int64  // bytes
	// Etag names the content: its SHA-256 where the hub keeps it beside the
	// repository (LFS, Xet), else the SHA-1 that git gives it. It is the name of the blob
	// in the cache.
	Etag string
}

// splitPart is how parts of a split GGUF file are named (gguf-split of llama.cpp).
var splitPart = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})(\.gguf)$`)

// maxSide bounds a file that is taken along beside weights: tokenizers of large
// vocabularies take some 40 MB as JSON.
const maxSide = 256 << 20

// choose returns those of a repository's files that make the model that is meant, and the
// path that opens it: a file, or "" for the folder.
func choose(r Ref, all []File) (files []File, open string, err error) {
	byPath := map[string]File{}
	for _, f := range all {
		byPath[f.Path] = f
	}
	switch {
	case r.File != "":
		if _, ok := byPath[r.File]; !ok {
			return nil, "", formats.Errorf(r.String(), "", "the repository has no file %q%s", formats.Brief(r.File, 100), models(all))
		}
		if strings.HasSuffix(r.File, ".safetensors") {
			return folder(all), r.File, nil
		}
		return together(r, all, r.File)
	case r.Variant != "":
		var fits []string
		for _, name := range ggufs(all) {
			if hasVariant(name, r.Variant) {
				fits = append(fits, name)
			}
		}
		if len(fits) == 0 {
			return nil, "", formats.Errorf(r.String(), "", "the repository has no GGUF file of %q%s", r.Variant, models(all))
		}
		if len(fits) > 1 {
			// Q4_K_M and UD-Q4_K_M, or two sizes of a model: the name that says the least.
			slices.SortFunc(fits, func(a, b string) int { return len(a) - len(b) })
			if len(fits[0]) == len(fits[1]) {
				return nil, "", formats.Errorf(r.String(), "", "several files are meant%s", listed(fits))
			}
		}
		return together(r, all, fits[0])
	}
	var packages []string
	for _, f := range all {
		if strings.HasSuffix(f.Path, ".nstf") {
			packages = append(packages, f.Path)
		}
	}
	switch {
	case len(packages) == 1:
		return []File{byPath[packages[0]]}, packages[0], nil
	case len(packages) > 1:
		return nil, "", formats.Errorf(r.String(), "", "several packages: say which by %s:FILE%s", r.Repo, listed(packages))
	}
	if _, ok := byPath["config.json"]; ok && slices.ContainsFunc(all, func(f File) bool { return isWeights(f.Path) }) {
		return folder(all), "", nil
	}
	names := ggufs(all)
	switch {
	case len(names) == 0:
		return nil, "", formats.Unsupportedf(r.String(), "", "the repository has no weights as safetensors, GGUF or .nstf")
	case len(names) > 1:
		// What llama.cpp takes where nothing is said.
		i := slices.IndexFunc(names, func(n string) bool { return hasVariant(n, "Q4_K_M") })
		if i < 0 {
			return nil, "", formats.Errorf(r.String(), "", "several GGUF files: say which by %s:QUANTIZATION%s", r.Repo, listed(names))
		}
		names[0] = names[i]
	}
	return together(r, all, names[0])
}

// together returns a file with the other parts of it.
func together(r Ref, all []File, name string) (files []File, open string, err error) {
	m := splitPart.FindStringSubmatch(name)
	for _, f := range all {
		if m == nil && f.Path == name {
			return []File{f}, name, nil
		}
		if o := splitPart.FindStringSubmatch(f.Path); m != nil && o != nil && o[1] == m[1] && o[3] == m[3] {
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	if want := fmt.Sprintf("%05d", len(files)); len(files) == 0 || want != m[3] {
		return nil, "", formats.Errorf(r.String(), "", "%d of the %s parts of %s are there", len(files), m[3], m[1])
	}
	return files, files[0].Path, nil
}

// ggufs returns the GGUF files, the first part alone of split ones, without what is no
// language model: projectors of vision, importance matrices, adapters.
func ggufs(all []File) (names []string) {
	for _, f := range all {
		base := strings.ToLower(path.Base(f.Path))
		if !strings.HasSuffix(base, ".gguf") || strings.Contains(base, "mmproj") || strings.Contains(base, "imatrix") || strings.Contains(base, "lora") {
			continue
		}
		if m := splitPart.FindStringSubmatch(f.Path); m != nil && m[2] != "00001" {
			continue
		}
		names = append(names, f.Path)
	}
	return names
}

// hasVariant reports whether a name says a quantization as a word of its own: "Q4_K" is
// none of "model-Q4_K_M.gguf".
func hasVariant(name, want string) bool {
	low, want := strings.ToLower(name), strings.ToLower(want)
	for from := 0; ; {
		i := strings.Index(low[from:], want)
		if i < 0 {
			return false
		}
		begin, end := from+i, from+i+len(want)
		word := func(c byte) bool { return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' }
		if (begin == 0 || !word(low[begin-1])) && (end == len(low) || !word(low[end])) {
			return true
		}
		from = begin + 1
	}
}

func isWeights(p string) bool {
	return !strings.Contains(p, "/") && strings.HasSuffix(p, ".safetensors")
}

// folder returns what a Hugging Face directory is read from.
func folder(all []File) (files []File) {
	named := slices.ContainsFunc(all, func(f File) bool { return isWeights(f.Path) && strings.HasPrefix(f.Path, "model") })
	for _, f := range all {
		switch base, ext := path.Base(f.Path), path.Ext(f.Path); {
		case isWeights(f.Path):
			// Mistral's own format lies beside transformers' in some repositories.
			if named && strings.HasPrefix(f.Path, "consolidated") {
				continue
			}
		case f.Path == "1_Pooling/config.json" || path.Dir(f.Path) == "chat_templates" || path.Dir(f.Path) == "additional_chat_templates":
		case strings.Contains(f.Path, "/") || f.Size > maxSide:
			continue
		case ext == ".json" || ext == ".jinja" || ext == ".model" || ext == ".tiktoken" || ext == ".txt":
		case strings.HasPrefix(base, "LICENSE") || base == "README.md":
		default:
			continue
		}
		files = append(files, f)
	}
	return files
}

// models lists what a user may have meant.
func models(all []File) string { return listed(ggufs(all)) }

func listed(names []string) string {
	const most = 40
	if len(names) == 0 {
		return ""
	}
	s := "; there are "
	for i, n := range names {
		if i == most {
			return s + fmt.Sprintf(" and %d more", len(names)-most)
		}
		if i > 0 {
			s += ", "
		}
		s += formats.Brief(n, 100)
	}
	return s
}
