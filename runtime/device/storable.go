package device

// A Storable is a [Snapshot] that can be written down, to be read by a state of the
// same stage, also of another process: pages of positions, [Room].PageSize each, and
// what is not kept by position.
type Storable interface {
	Snapshot

	// AppendPage appends what the positions of a page are, those that are not valid
	// with anything in their places.
	AppendPage(dst []byte, page int) []byte
	// AppendRest appends what is not kept by position.
	AppendRest(dst []byte) []byte
}

// A Loader is a [State] that reads what a [Storable] has written. It is empty before, and
// nothing is reserved. Where nothing fails n positions are valid, where something does the
// caller has it go back to none; a cache.FullError says that there is no room.
type Loader interface {
	State

	Load(n int64, pages [][]byte, rest []byte) error
}
