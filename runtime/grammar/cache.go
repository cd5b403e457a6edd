package grammar

import (
	"errors"
	"sync"
)

// A Cache keeps compiled grammars of a vocabulary, so that requests with the same schema
// share one. It is safe for concurrent use.
type Cache struct {
	v    *Vocabulary
	kept lru[string, *Compiled]
	mu   sync.Mutex
	busy map[string]*making
}

// A making is a grammar that is being made.
type making struct {
	done chan struct{}
	c    *Compiled
	err  error
}

// errMaking is what those get who wait for a parse that panics.
var errMaking = errors.New("the grammar could not be made")

// NewCache returns a cache for grammars of a vocabulary, of so many bytes at most. A
// grammar counts with its automata and the 16 MiB that its places may come to.
func NewCache(v *Vocabulary, bytes int64) *Cache {
	c := &Cache{v: v, busy: map[string]*making{}}
	c.kept.limit = bytes
	return c
}

// Get returns the grammar of a key, which says what kind of source it is and the whole
// source, and calls parse where it is not there. Who asks for it meanwhile waits. An
// error is given to all who wait, and is not kept.
func (c *Cache) Get(key string, parse func() (*Grammar, error)) (*Compiled, error) {
	c.mu.Lock()
	if p, ok := c.kept.get(key); ok {
		c.mu.Unlock()
		return p, nil
	}
	if b, ok := c.busy[key]; ok {
		c.mu.Unlock()
		<-b.done
		return b.c, b.err
	}
	b := &making{done: make(chan struct{}), err: errMaking}
	c.busy[key] = b
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.busy, key)
		if b.err == nil {
			c.kept.add(key, b.c, int64(len(key))+b.c.m.g.bytes()+configBytes)
		}
		c.mu.Unlock()
		close(b.done)
	}()
	g, err := parse()
	if err != nil {
		b.err = err
		return nil, err
	}
	b.c, b.err = c.v.Compile(g), nil
	return b.c, nil
}
