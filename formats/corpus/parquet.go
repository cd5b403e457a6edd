package corpus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/nstf/nstf/formats"
)

// maxParquetText bounds the text taken from one file, which compression could
// make far larger than the file.
const maxParquetText = 4 << 30

// parseParquet reads the column "text", or "messages": a list of groups with
// "role" and "content". The library panics on some damaged files; that is
// reported as any other damage.
func parseParquet(name string, r io.ReaderAt, size, most int64) (samples []Sample, err error) {
	defer func() {
		if p := recover(); p != nil {
			samples, err = nil, formats.Errorf(name, "", "damaged parquet file: its reader stumbles over what it says")
		}
	}()
	if err := checkFooter(name, r, size); err != nil {
		return nil, err
	}
	f, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, formats.Errorf(name, "", "not a readable parquet file: %v", err)
	}
	t := table{file: name, f: f, size: size, most: most}
	if c, ok := t.column("text"); ok {
		return t.texts(c)
	}
	role, ok1 := t.column("messages", "role")
	content, ok2 := t.column("messages", "content")
	if ok1 && ok2 {
		return t.messages(role, content)
	}
	return nil, formats.Errorf(name, "text", "neither a column \"text\" of strings nor \"messages\" with \"role\" and \"content\" among %s", t.columns())
}

// errEnough ends a walk where as much text was read as is wanted.
var errEnough = errors.New("enough")

// A table is an open parquet file.
type table struct {
	file string
	f    *parquet.File
	size int64
	read int64 // bytes of text
	most int64 // of them, 0: all
	cut  bool  // there is more
}

func (t *table) columns() string {
	var names []string
	for _, path := range t.f.Schema().Columns() {
		if len(names) == 8 {
			names = append(names, "...")
			break
		}
		c, _ := t.f.Schema().Lookup(path...)
		names = append(names, fmt.Sprintf("%.40q (%.20s)", strings.Join(path, "."), c.Node.Type()))
	}
	return strings.Join(names, ", ")
}

// column finds a leaf by its first name and, where two are given, its last.
func (t *table) column(names ...string) (parquet.LeafColumn, bool) {
	for _, path := range t.f.Schema().Columns() {
		if path[0] != names[0] || len(names) == 1 && len(path) > 1 || len(names) == 2 && (len(path) < 3 || path[len(path)-1] != names[1]) {
			continue
		}
		c, ok := t.f.Schema().Lookup(path...)
		if ok && c.Node.Type().Kind() == parquet.ByteArray && c.MaxRepetitionLevel == len(names)-1 {
			return c, true
		}
	}
	return parquet.LeafColumn{}, false
}

// walk calls f with every value of a column, in order.
func (t *table) walk(c parquet.LeafColumn, f func(row int, v parquet.Value) error) error {
	row := -1
	for _, g := range t.f.RowGroups() {
		pages := g.ColumnChunks()[c.ColumnIndex].Pages()
		err := t.pages(pages, func(v parquet.Value) error {
			if v.RepetitionLevel() == 0 {
				row++
			}
			if t.most > 0 && t.read >= t.most && v.RepetitionLevel() == 0 {
				return errEnough
			}
			if t.read += int64(len(v.Bytes())); t.read > maxParquetText {
				return formats.Unsupportedf(t.file, "", "more than %d bytes of text in one file", int64(maxParquetText))
			}
			return f(row, v)
		})
		pages.Close()
		if err == errEnough {
			t.cut = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *table) pages(pages parquet.Pages, f func(v parquet.Value) error) error {
	var values [256]parquet.Value
	for {
		page, err := pages.ReadPage()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return formats.Errorf(t.file, "", "damaged parquet file: %v", err)
		}
		r := page.Values()
		for err == nil {
			var n int
			n, err = r.ReadValues(values[:])
			if n == 0 && err == nil {
				err = io.ErrNoProgress
			}
			for _, v := range values[:n] {
				if e := f(v); e != nil {
					return e
				}
			}
		}
		if !errors.Is(err, io.EOF) {
			return formats.Errorf(t.file, "", "damaged parquet file: %v", err)
		}
	}
}

// texts reads one string per row; a missing one is an empty text.
func (t *table) texts(c parquet.LeafColumn) ([]Sample, error) {
	var out []Sample
	err := t.walk(c, func(_ int, v parquet.Value) error {
		out = append(out, Sample{Text: string(v.Bytes())})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// messages joins roles and contents of each row's list.
func (t *table) messages(role, content parquet.LeafColumn) ([]Sample, error) {
	roles, err := t.lists(role)
	if err != nil {
		return nil, err
	}
	contents, err := t.lists(content)
	if err != nil {
		return nil, err
	}
	if t.cut {
		n := min(len(roles), len(contents))
		roles, contents = roles[:n], contents[:n]
	}
	if len(roles) != len(contents) {
		return nil, formats.Errorf(t.file, "messages", "%d rows of roles and %d of contents", len(roles), len(contents))
	}
	out := make([]Sample, len(roles))
	for i := range roles {
		if len(roles[i]) != len(contents[i]) {
			return nil, formats.Errorf(t.file, "messages", "row %d has %d roles and %d contents", i, len(roles[i]), len(contents[i]))
		}
		list := []map[string]string{}
		for j := range roles[i] {
			list = append(list, map[string]string{"role": roles[i][j], "content": contents[i][j]})
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(list); err != nil {
			return nil, err
		}
		out[i].Messages = bytes.TrimSpace(b.Bytes())
	}
	return out, nil
}

// lists reads one list of strings per row. A list without elements leaves one
// value whose definition level says so.
func (t *table) lists(c parquet.LeafColumn) (out [][]string, err error) {
	err = t.walk(c, func(row int, v parquet.Value) error {
		for len(out) <= row {
			out = append(out, nil)
		}
		if row < 0 {
			return formats.Errorf(t.file, "messages", "damaged parquet file: a list that begins nowhere")
		}
		if v.DefinitionLevel() == c.MaxDefinitionLevel || !v.IsNull() {
			out[row] = append(out[row], string(v.Bytes()))
		} else if v.DefinitionLevel() == c.MaxDefinitionLevel-1 && c.Node.Optional() {
			out[row] = append(out[row], "") // a message without content
		}
		return nil
	})
	return out, err
}
