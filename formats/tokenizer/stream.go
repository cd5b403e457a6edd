package tokenizer

// StreamOptions are the choices of [Tokenizer.NewStream].
type StreamOptions struct {
	SkipSpecial bool // leave special tokens out
	// Context are the ids in front of the stream, usually the prompt's. They
	// are not printed, but decide whether the first id begins a text, where
	// some decoders strip a space. Only the last few matter.
	Context []int32
}

// A Stream decodes ids as they come and never returns half a UTF-8 sequence.
// What it returns in all is what [Tokenizer.Decode] would of the same ids, but
// for a run of byte tokens that is not UTF-8, where Decode gives up the whole
// run and a Stream what is broken. It is not safe for concurrent use.
type Stream struct {
	t    *Tokenizer
	skip bool
	ids  []int32 // a window: enough of the past, and what is not printed yet
	done int     // bytes of the window's text that have been returned
}

// streamPast is how many ids of the past a window keeps: with the text they
// decode to, so that the next id is not the first of a text.
const streamPast = 4

// NewStream returns a stream in front of its first id.
func (t *Tokenizer) NewStream(o StreamOptions) *Stream {
	s := &Stream{t: t, skip: o.SkipSpecial}
	for i := max(0, len(o.Context)-64); i < len(o.Context); i++ {
		s.add(o.Context[i])
	}
	s.done = len(t.decodeChain(s.ids, s.skip, true))
	s.slide()
	return s
}

func (s *Stream) add(id int32) {
	if !s.skip || !s.t.IsSpecial(id) {
		s.ids = append(s.ids, id)
	}
}

// Next takes an id and returns the text that is now complete, often none.
func (s *Stream) Next(id int32) string {
	n := len(s.ids)
	s.add(id)
	if len(s.ids) == n {
		return ""
	}
	text := s.t.decodeChain(s.ids, s.skip, true)
	if len(text) < s.done {
		return ""
	}
	fresh := text[s.done:]
	cut := completeEnd(fresh)
	s.done += cut
	if cut == len(fresh) {
		s.slide()
	}
	return lossy(fresh[:cut])
}

// Flush returns what is left: the beginning of a sequence that never ended,
// as U+FFFD. The stream then goes on as if the text ended there.
func (s *Stream) Flush() string {
	text := s.t.decodeChain(s.ids, s.skip, true)
	if len(text) <= s.done {
		return ""
	}
	rest := text[s.done:]
	s.done = len(text)
	s.slide()
	return lossy(rest)
}

// slide drops the past but for its last ids, as long as those decode to some
// text: without any, the next id would count as the text's first.
func (s *Stream) slide() {
	if len(s.ids) <= 2*streamPast {
		return
	}
	keep := s.ids[len(s.ids)-streamPast:]
	if n := len(s.t.decodeChain(keep, s.skip, true)); n > 0 {
		s.ids = append(s.ids[:0], keep...)
		s.done = n
	}
}

// completeEnd returns where a possibly unfinished sequence at the end of s
// begins, or len(s).
func completeEnd(s string) int {
	for i := max(0, len(s)-3); i < len(s); i++ {
		if n := partialRune(s[i:]); n > 0 && i+n == len(s) {
			return i
		}
	}
	return len(s)
}
