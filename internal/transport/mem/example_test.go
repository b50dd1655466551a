package mem_test

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// A message goes straight to where its receiver wants it. It may be sent before that is known.
func ExampleNew() {
	ranks := mem.New(2)
	defer ranks[0].Close()
	defer ranks[1].Close()
	tag := transport.Tag{}
	if err := ranks[0].Send(1, tag, []byte("gradient"), time.Minute); err != nil {
		fmt.Println(err)
		return
	}
	var r transport.Recv
	got := make([]byte, 8)
	ranks[1].Post(&r, 0, tag, got)
	err := r.Wait(time.Minute)
	fmt.Printf("%s, %v; %d bytes sent\n", got, err, ranks[0].Traffic().PayloadSent)
	// Output:
	// gradient, <nil>; 8 bytes sent
}
