package atomicfile

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Of processes that claim a file and give it back each has it alone, and none fails because another has just
// removed it.
func TestClaim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "claimed")
	var wait sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for range 4 {
		wait.Go(func() {
			for range 300 {
				ok, err := Claim(path, []byte("me"))
				if err != nil {
					t.Error(err)
					return
				}
				if !ok {
					continue
				}
				if !mu.TryLock() {
					t.Error("two have it")
					return
				}
				taken++
				mu.Unlock()
				if err := os.Remove(path); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if taken == 0 {
		t.Error("nobody ever had it")
	}
}
