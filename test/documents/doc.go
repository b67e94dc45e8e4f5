// Package documents runs the commands of the documentation, which are those of the site: of the manual pages,
// the pages about symptoms, and all other Markdown files. Commands that are not tools are executed elsewhere;
// TestElsewhere says where.
package documents
