// Package documents runs the commands of the documentation: of the pages about symptoms, the README, the
// cheat sheet and the tldr pages.
package documents
