// Command tables is a custom model with parameters on servers: users and items have a row each,
// created on first access, and the product of two rows predicts whether the user likes the item.
//
//	go build ./examples/tables
//	ringo run --np 2 --servers 2 --sync async -- ./tables    # or bsp, ssp; geo needs local copies
package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
)

const (
	dim, batch, steps = 8, 512, 600
	people            = 2000 // users, and as many items
)

func main() {
	if err := ringo.Run(context.Background(), ringo.Config{}, train); err != nil {
		if !ringo.Reported(err) { // reported once for all ranks by the launcher otherwise
			fmt.Fprintln(os.Stderr, "tables:", err)
		}
		os.Exit(1)
	}
}

func train(job *ringo.Job) error {
	rows := schema.Sparse{
		Name: "tastes", Dim: dim,
		Rule: schema.Rule{Name: "adagrad", LR: 0.2},
		Init: schema.Init{Name: "uniform", Value: 0.3},
	}
	c, err := job.DialParameterServers(client.Config{
		Schema: schema.Schema{Sparse: []schema.Sparse{rows}},
		Merge:  true, // a batch may contain a user more than once
	})
	if err != nil {
		return err
	}
	defer c.Close()
	session, rnd := c.Session(0), rand.New(rand.NewPCG(1, uint64(job.Rank())))
	keys, next := make([]uint64, 2*batch), make([]uint64, 2*batch) // alternately of users and items
	held, coming := make([]float32, 2*batch*dim), make([]float32, 2*batch*dim)
	grads := make([]float32, 2*batch*dim)
	draw(next, rnd)
	pull, err := session.PullRows(0, 1, next, coming)
	if err != nil {
		return err
	}
	for step := uint64(1); step <= steps; step++ {
		if err := pull.Wait(); err != nil {
			return err
		}
		keys, next, held, coming = next, keys, coming, held
		draw(next, rnd) // fetches the rows while this batch is computed
		if pull, err = session.PullRows(0, step+1, next, coming); err != nil {
			return err
		}
		loss := learn(keys, held, grads)
		if err := session.PushRows(0, step, keys, grads); err != nil {
			return err
		}
		if err := session.Clock(step, -1); err != nil { // unchanged learning rate
			return err
		}
		if job.Rank() == 0 && step%100 == 0 {
			fmt.Printf("step %d, rank 0 of %d, %d servers: loss %.4f\n", step, job.Size(), job.ParameterServers(), loss)
		}
	}
	if err := pull.Wait(); err != nil {
		return err
	}
	return c.Leave(context.Background())
}

// draw fills a batch: even keys are users, odd keys items.
func draw(keys []uint64, rnd *rand.Rand) {
	for i := range keys {
		keys[i] = 2*rnd.Uint64N(people) + uint64(i%2)
	}
}

// likes is the function to learn: half of the users like half of the items.
func likes(user, item uint64) bool { return (user/2)%2 == (item/2)%2 }

// learn computes the gradients of a batch's rows, and returns its mean loss.
func learn(keys []uint64, rows, grads []float32) (loss float64) {
	for i := 0; i < len(keys); i += 2 {
		user, item := rows[i*dim:(i+1)*dim], rows[(i+1)*dim:(i+2)*dim]
		score := 0.0
		for j := range dim {
			score += float64(user[j] * item[j])
		}
		target := 0.0
		if likes(keys[i], keys[i+1]) {
			target = 1
		}
		p := 1 / (1 + math.Exp(-score))
		loss += math.Log1p(math.Exp(score)) - target*score
		for j := range dim {
			grads[i*dim+j] = float32(p-target) * item[j]
			grads[(i+1)*dim+j] = float32(p-target) * user[j]
		}
	}
	return loss / float64(len(keys)/2)
}
