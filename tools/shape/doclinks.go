package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"example.com/idempotency/tools/internal/source"
)

// unresolved matches what has the form of a doc link to an exported name. The parser, too, wants
// neither letters nor digits beside the brackets: Pool[T] is not a link.
var unresolved = regexp.MustCompile(`\B\[\*?(?:[\w/.-]+\.)?[A-Z]\w*\]\B`)

// checkDocLinks names the doc links in the doc comments of all packages that lead nowhere.
func checkDocLinks(t *tree, set *source.Set) (problems []string) {
	for _, p := range set.Packages {
		// AllDecls, because who reads the source follows links between unexported names, too.
		documented, err := doc.NewFromFiles(set.Fset, p.Syntax, p.ImportPath, doc.AllDecls|doc.PreserveAST)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		parser := documented.Parser()
		for _, file := range p.Syntax {
			ast.Inspect(file, func(n ast.Node) bool {
				group, ok := n.(*ast.CommentGroup)
				if !ok {
					return true
				}
				for _, link := range deadLinks(set, parser.Parse(group.Text())) {
					at := set.Fset.Position(group.Pos())
					problems = append(problems, fmt.Sprintf("%s:%d: the doc link %s leads nowhere", t.name(at.Filename), at.Line, link))
				}
				return true
			})
		}
	}
	return problems
}

// deadLinks returns the doc links of a comment that lead nowhere. The parser leaves a link as
// text if it does not know the package, or the name in this package; of other packages' names
// it knows nothing.
func deadLinks(set *source.Set, c *comment.Doc) (dead []string) {
	inText := func(text []comment.Text) {
		for _, part := range text {
			switch part := part.(type) {
			case comment.Plain:
				dead = append(dead, unresolved.FindAllString(string(part), -1)...)
			case *comment.DocLink:
				if part.ImportPath != "" && !exists(set, part) {
					words := slices.DeleteFunc([]string{part.ImportPath, part.Recv, part.Name}, func(s string) bool { return s == "" })
					dead = append(dead, "["+strings.Join(words, ".")+"]")
				}
			}
		}
	}
	var inBlocks func([]comment.Block)
	inBlocks = func(blocks []comment.Block) {
		for _, block := range blocks {
			switch block := block.(type) {
			case *comment.Heading:
				inText(block.Text)
			case *comment.Paragraph:
				inText(block.Text)
			case *comment.List:
				for _, item := range block.Items {
					inBlocks(item.Content)
				}
			}
		}
	}
	inBlocks(c.Content)
	return dead
}

// exists tells whether a link to another package leads to an exported name there.
func exists(set *source.Set, link *comment.DocLink) bool {
	pkg, err := set.Import(link.ImportPath)
	if err != nil {
		// The standard library has packages that nothing here imports.
		_, known := comment.DefaultLookupPackage(link.ImportPath)
		return known
	}
	if link.Name == "" {
		return true
	}
	if link.Recv == "" {
		return pkg.Scope().Lookup(link.Name) != nil
	}
	holder := pkg.Scope().Lookup(link.Recv)
	if holder == nil {
		return false
	}
	member, _, _ := types.LookupFieldOrMethod(holder.Type(), true, pkg, link.Name)
	return member != nil
}
