package prove

import (
	"maps"
	"slices"
)

func proofs() []proof {
	return slices.Concat(fileProofs(), processProofs(), networkProofs(), schedulerProofs(), objectProofs(), blockProofs())
}

func jobs() map[string]job {
	all := map[string]job{}
	for _, of := range []map[string]job{fileJobs(), processJobs(), networkJobs(), schedulerJobs(), objectJobs(), blockJobs()} {
		maps.Copy(all, of)
	}
	return all
}

// reasonOf returns why a tool has no proof.
func reasonOf(name string) string {
	if reason := withoutProof()[name]; reason != "" {
		return reason
	}
	return "no proof has been written for this tool"
}

func withoutProof() map[string]string {
	return map[string]string{}
}
