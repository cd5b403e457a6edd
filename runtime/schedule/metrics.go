package schedule

// Metrics are counters since a scheduler began, and how it is now.
type Metrics struct {
	Requests, Choices int64
	PromptTokens      int64 // of requests
	ComputedTokens    int64 // of prompts, and of sequences that had yielded
	CachedTokens      int64 // that were found instead
	Tokens            int64 // chosen
	Forced            int64 // of those, by a constraint that left no choice, several in a pass
	Steps             int64
	Yields            int64 // how often a sequence gave its memory to others
	Ended             map[Reason]int64
	KeptHits          int64 // sequences that began with something that was kept
	KeptDropped       int64 // prompts that were, for want of room
	DiskTokens        int64 // of those that were found, the ones that were read from the disk

	// Now.
	Running, Waiting int
	Kept             int   // prompts
	Pages, FreePages int64 // of the pool; what is kept is not free
}

// Metrics returns them.
func (s *Scheduler) Metrics() Metrics {
	room := s.ex.Room()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.metrics
	m.Ended = map[Reason]int64{}
	for r, n := range s.metrics.Ended {
		m.Ended[r] = n
	}
	m.Waiting = len(s.waiting)
	m.Pages, m.FreePages = room.Pages, room.Free
	return m
}
