package data

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/setting"
)

// isTablePart reports whether a file is part of a table by name: Spark's names of parts, or a
// table's extension.
func isTablePart(name string) bool {
	return strings.HasPrefix(name, "part-") || endings[ending(name)] == "table" && ending(name) != ".txt"
}

// unread reports whether a file is no part of a table: hidden, a checksum, a marker (_SUCCESS).
func unread(name string) bool { return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") }

// isParts reports whether a folder is a table in parts: at least one part, and no subfolder or file
// of another set.
func isParts(dir string) bool {
	entries, _ := os.ReadDir(dir)
	found := false
	for _, e := range entries {
		name := e.Name()
		if plain, _ := datafile.UnpackedName(name); !unread(name) && (e.IsDir() && !strings.Contains(name, "=") || images.IsImage(name) || datafile.IsArchive(name) || strings.HasSuffix(plain, "-ubyte") || ending(name) == ".bin") {
			return false
		}
		found = found || isTablePart(name) || e.IsDir() && strings.Contains(name, "=")
	}
	return found
}

// partsOf returns a folder's table files by name, without empty files.
func partsOf(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch info, err := os.Stat(path); {
		case unread(e.Name()):
			continue
		case err != nil:
			return nil, err
		case info.IsDir():
			return nil, fmt.Errorf("%s is a folder: the files of a table are in one folder, without others below it", path)
		case !isTablePart(e.Name()):
			return nil, fmt.Errorf("%s is not a part of the table in folder %s: want names that begin with part- or end in %s: give the table's file instead of the folder, or move this file", path, dir, endingsOf("table"))
		case info.Size() > 0:
			names, paths = append(names, e.Name()), append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s has no table file: want a file, or a folder of files, that ends in %s", dir, endingsOf("table"))
	}
	has := func(words ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(strings.ToLower(name), word) })
		})
	}
	if has("train") && has(datafile.EvalWords()...) {
		return nil, setting.Errorf(datafile.DirPath, "%s has files to train on and to evaluate on (%s): name one of each with %v and %v", dir, strings.Join(names[:min(len(names), 5)], ", "), datafile.TrainFilePath, datafile.EvalFilePath)
	}
	return paths, nil
}

func openParts(dir string) (table.Reader, error) {
	paths, err := partsOf(dir)
	if err != nil {
		return nil, err
	}
	var files []table.Reader
	for _, path := range paths {
		f, err := OpenTable(path)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return table.Join(dir, files)
}

// converted returns how to convert a file that is no table by name, such as .xlsx, or "".
func converted(path string) string {
	if images.IsIDX(path) {
		return "; it is an IDX file: `ringo train mnist --data " + filepath.Dir(path) + "` reads a folder of them"
	}
	by := []struct{ endings, remedy string }{
		{".xlsx .xls .ods .numbers", "save it as CSV UTF-8 there"},
		{".zip .7z .rar .bz2 .xz .tar", "unpack it, and name the file in it"},
		{".json .jsonl .ndjson", "convert it, with pandas: read_json(FILE, lines=True).to_csv(NEW, index=False)"},
		{".pkl .h5 .hdf5 .dta .sav .sas7bdat .db .sqlite .orc .avro", "export it as .csv or .parquet"},
	}
	for _, b := range by {
		if end := ending(path); end != "" && slices.Contains(strings.Fields(b.endings), end) {
			return "; " + b.remedy
		}
	}
	return ""
}
