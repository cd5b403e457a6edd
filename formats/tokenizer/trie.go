package tokenizer

import "sort"

// A trie finds the pieces that begin at a place of a text, shortest first.
// The children of a node lie side by side in labels order.
type trie struct {
	nodes  []trieNode
	labels []byte // labels[i] leads to nodes[i]
}

type trieNode struct {
	first int32 // index of the first child
	n     int32 // children, at most 256
	id    int32 // of the piece that ends here, or -1
}

type trieRange struct {
	node, lo, hi int
	depth        int
}

// newTrie holds the pieces by their ids. Of equal pieces the last id wins,
// as in the map of Hugging Face's Unigram.
func newTrie(pieces map[string]int32) *trie {
	keys := make([]string, 0, len(pieces))
	for k := range pieces {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	t := &trie{nodes: []trieNode{{id: -1}}, labels: []byte{0}}
	queue := []trieRange{{0, 0, len(keys), 0}}
	for len(queue) > 0 {
		q := queue[0]
		queue = queue[1:]
		lo := q.lo
		if lo < q.hi && len(keys[lo]) == q.depth {
			t.nodes[q.node].id = pieces[keys[lo]]
			lo++
		}
		t.nodes[q.node].first = int32(len(t.nodes))
		for lo < q.hi {
			c := keys[lo][q.depth]
			hi := lo + 1
			for hi < q.hi && keys[hi][q.depth] == c {
				hi++
			}
			queue = append(queue, trieRange{len(t.nodes), lo, hi, q.depth + 1})
			t.nodes = append(t.nodes, trieNode{id: -1})
			t.labels = append(t.labels, c)
			t.nodes[q.node].n++
			lo = hi
		}
	}
	return t
}

// step goes from node along c; it returns 0 when there is no way.
func (t *trie) step(node int32, c byte) int32 {
	n := t.nodes[node]
	l := t.labels[n.first : n.first+n.n]
	if len(l) > 8 {
		i := sort.Search(len(l), func(i int) bool { return l[i] >= c })
		if i < len(l) && l[i] == c {
			return n.first + int32(i)
		}
		return 0
	}
	for i, x := range l {
		if x == c {
			return n.first + int32(i)
		}
	}
	return 0
}

// longest returns the length of the longest piece that s begins with, or 0.
func (t *trie) longest(s string) int {
	best, node := 0, int32(0)
	for i := 0; i < len(s); i++ {
		if node = t.step(node, s[i]); node == 0 {
			break
		}
		if t.nodes[node].id >= 0 {
			best = i + 1
		}
	}
	return best
}
