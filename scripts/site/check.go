package main

import (
	"fmt"
	"html"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// check returns an error for each link or image of the site whose file or anchor does not exist, and for
// each resource that is loaded from elsewhere.
func check(root string) (errs []error) {
	pages := map[string]string{}
	files := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		files[name] = true
		if path.Ext(name) == ".html" && !strings.HasPrefix(name, "docs/gallery/") {
			b, err := os.ReadFile(file)
			pages[name] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		return []error{fmt.Errorf("read site: %w", err)}
	}
	reference := regexp.MustCompile(`<[a-z]+ [^>]*?(href|src)="([^"]*)"`)
	for name, text := range pages {
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			if err := checkReference(pages, files, name, html.UnescapeString(m[2]), m[1] == "src" || strings.HasPrefix(m[0], "<link")); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

func checkReference(pages map[string]string, files map[string]bool, from, to string, isLoaded bool) error {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		if isLoaded {
			return fmt.Errorf("%s loads %s", from, to)
		}
		return nil
	}
	file, anchor, _ := strings.Cut(to, "#")
	target := from
	if file != "" {
		target = path.Join(path.Dir(from), file)
	}
	if !files[target] {
		return fmt.Errorf("%s: dead link %s", from, to)
	}
	if anchor != "" && !strings.Contains(pages[target], `id="`+anchor+`"`) {
		return fmt.Errorf("%s: dead anchor %s", from, to)
	}
	return nil
}
