package data

import "github.com/ringo-ml/ringo/internal/data/clicks"

// ClickKey returns the key of a category in a table without a fixed number of rows, such as a
// parameter server's: slot+1 in the upper 8 bits and the value in the lower 56 bits. Key 0 is a
// missing value, in any slot. Values below 2^56, such as Criteo's 32-bit hashes, are unchanged, so
// no two categories share a key; larger values are hashed to 56 bits. 0 <= slot < 255.
func ClickKey(slot int, value uint64) uint64 { return clicks.Key(slot, value) }

// ClickFiles lists the files of rows in paths, in the order of their names with numbers by value,
// so that day_2 precedes day_10. A path is a file, or a folder with files of tables or text (.tsv,
// .csv, .txt or no ending, also with .gz, .zst or .zstd). A plain file is preferred to its
// compressed twin.
func ClickFiles(paths ...string) ([]string, error) { return clicks.Files(paths...) }
