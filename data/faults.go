package data

import "github.com/ringo-ml/ringo/internal/data/datafile"

// FormatError is an error in the content of a data file. Its fields are File, Offset (the byte of
// the error, after decompression) and Problem.
type FormatError = datafile.FormatError

// LeftOut is one kind of files, samples or rows that a data set or a PredictInput leaves out. Its
// fields are Kind (a noun in the singular, such as "hidden file"), Count and Names (the first paths
// or errors, in order; all bad rows of a PredictInput).
type LeftOut = datafile.LeftOut

// BadSample is the LeftOut.Kind of damaged samples, which data.max-bad-records leaves out.
const BadSample = datafile.BadSample
