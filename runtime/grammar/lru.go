package grammar

import (
	"container/list"
	"sync"
)

// A lru keeps values within a number of bytes; what was asked for longest ago goes
// first. It is safe for concurrent use; the zero value keeps nothing until limit is set.
type lru[K comparable, V any] struct {
	mu    sync.Mutex
	limit int64
	bytes int64
	byKey map[K]*list.Element
	order list.List // of *kept[K, V], the last asked for first
}

type kept[K comparable, V any] struct {
	key   K
	value V
	bytes int64
}

func (l *lru[K, V]) get(k K) (v V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.byKey[k]
	if !ok {
		return v, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*kept[K, V]).value, true
}

// add keeps a value of so many bytes, unless there is one already.
func (l *lru[K, V]) add(k K, v V, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.byKey[k]; ok || bytes > l.limit {
		return
	}
	if l.byKey == nil {
		l.byKey = map[K]*list.Element{}
	}
	l.byKey[k] = l.order.PushFront(&kept[K, V]{k, v, bytes})
	for l.bytes += bytes; l.bytes > l.limit; {
		e := l.order.Back()
		old := e.Value.(*kept[K, V])
		l.order.Remove(e)
		delete(l.byKey, old.key)
		l.bytes -= old.bytes
	}
}

// size returns the number of values and their bytes.
func (l *lru[K, V]) size() (int, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order.Len(), l.bytes
}
