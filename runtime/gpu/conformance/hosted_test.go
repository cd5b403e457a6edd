package conformance

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// hosted returns a pool whose second half of pages lies in the host's memory, with what another holds on the card.
func (m *machine) hosted(t testing.TB, kv hip.KV) hip.KV {
	t.Helper()
	raw := make([]byte, kv.Bytes())
	if err := m.stream.Download(raw, driver.Buffer{Address: kv.Base, Size: int64(len(raw))}); err != nil {
		t.Fatal(err)
	}
	split := kv
	split.Pages = (kv.Pages + 1) / 2
	split.HostPages = kv.Pages - split.Pages
	var card, host []byte
	rest := raw
	for _, n := range kv.Planes() {
		card, host = append(card, rest[:n*int64(split.Pages)]...), append(host, rest[n*int64(split.Pages):n*int64(kv.Pages)]...)
		rest = rest[n*int64(kv.Pages):]
	}
	card = append(card, rest...) // summaries, and pages in half precision
	if int64(len(card)) != split.Bytes() || int64(len(host)) != split.HostBytes() {
		t.Fatalf("%d and %d bytes, want %d and %d", len(card), len(host), split.Bytes(), split.HostBytes())
	}
	split.Base = m.put(t, card).address()
	if len(host) > 0 {
		b, err := m.AllocShared(int64(len(host)))
		if err == nil {
			err = m.stream.Upload(b, host)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Free(b) })
		split.Host = b.Address
	}
	return split
}

// TestMovePages: pages change places, or go one way, in all planes of all layers, and their summaries with them.
func TestMovePages(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(31, 7))
	const pages, card = 11, 6
	var layers, before []hip.KV
	for _, kv := range []hip.KV{
		{Format: 1, Heads: 2, Dim: 80, Summarized: true}, {Format: 0, Heads: 1, Dim: 3}, {Format: 2, Heads: 3, Dim: 33, Summarized: true}, {Format: 4, Heads: 1, Dim: 64, NewestPages: 2, Summarized: true},
	} {
		kv.Pages = pages
		raw := make([]byte, kv.Bytes())
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		kv.Base = m.put(t, raw).address()
		before = append(before, kv)
		layers = append(layers, m.hosted(t, kv))
	}
	planes := hip.AppendMovePlanes(nil, layers)
	var words []int32
	of := [pages]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10} // whose content each page has
	for _, move := range []hip.Move{{From: 1, To: 9, Out: true, In: true}, {From: 4, To: 6, Out: true}, {From: 0, To: 10, In: true}, {From: 7, To: 8, Out: true, In: true}, {From: 2, To: 3, Out: true}} {
		words = move.Append(words)
		from, to := of[move.From], of[move.To]
		if move.Out {
			of[move.To] = from
		}
		if move.In {
			of[move.From] = to
		}
	}
	op := hip.MovePages{Planes: m.put(t, planes).address(), Count: len(planes) / hip.MovePlaneBytes, Pages: card, Moves: m.put(t, words).address(), N: len(words) / 4}
	m.run(t, op.Calls(m.target))
	get := func(at hip.Address, n int64) []byte {
		b := make([]byte, n)
		if err := m.stream.Download(b, driver.Buffer{Address: at, Size: n}); err != nil {
			t.Fatal(err)
		}
		return b
	}
	for i := range layers {
		was, is := get(before[i].Base, before[i].Bytes()), slices.Concat(get(layers[i].Base, layers[i].Bytes()), get(layers[i].Host, layers[i].HostBytes()))
		at, on, host := int64(0), int64(0), layers[i].Bytes()
		check := func(n, here int64) {
			for page := range int64(pages) {
				now := is[on+page*n:][:n]
				if page >= here {
					now = is[host+(page-here)*n:][:n]
				}
				if want := was[at+int64(of[page])*n:][:n]; !bytes.Equal(now, want) {
					t.Fatalf("layer %d: page %d has not what page %d had", i, page, of[page])
				}
			}
			at, on, host = at+n*pages, on+n*here, host+n*(pages-here)
		}
		for _, n := range layers[i].Planes() {
			check(n, card)
		}
		check(layers[i].SummaryBytes(), pages)
		if !bytes.Equal(is[on:layers[i].Bytes()], was[at:]) {
			t.Fatalf("layer %d: pages in half precision were touched", i)
		}
	}
}
