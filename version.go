// Package ringo joins programs into a training job.
package ringo

// Version is this module's version. Ranks of different versions refuse to form
// a group, because the frames between them may differ.
const Version = "0.1.0"
