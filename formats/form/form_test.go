package form

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func ExampleByName() {
	f, ok := ByName("dense")
	fmt.Println(f.ID, f.Formula, ok)
	// Output: 1 W = Decode(parts) true
}

// TestTableComplete holds every row to an ascending id, a unique name and a
// page that carries the row's name, id and formula.
func TestTableComplete(t *testing.T) {
	last := ID(0)
	seen := map[string]bool{}
	for _, f := range table() {
		if f.ID <= last {
			t.Errorf("%s: id %d does not ascend", f.Name, f.ID)
		}
		last = f.ID
		if seen[f.Name] {
			t.Errorf("name %s twice", f.Name)
		}
		seen[f.Name] = true
		page, err := os.ReadFile("../../" + f.Page)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		for _, want := range []string{"`" + f.Name + "`", fmt.Sprintf("id %d", f.ID), f.Formula} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s does not mention %q", f.Page, want)
			}
		}
		if got, ok := ByName(f.Name); !ok || got.ID != f.ID {
			t.Errorf("ByName(%s) = %v, %v", f.Name, got, ok)
		}
		if got, ok := ByID(f.ID); !ok || got.ID != f.ID {
			t.Errorf("ByID(%d) = %v, %v", f.ID, got, ok)
		}
	}
}

func TestUnknown(t *testing.T) {
	if f, ok := ByName("Dense"); ok {
		t.Errorf("names are case-sensitive, got %v", f)
	}
	if f, ok := ByID(0); ok {
		t.Errorf("id 0 means nothing, got %v", f)
	}
}
