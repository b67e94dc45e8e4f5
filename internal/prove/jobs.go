package prove

import (
	"maps"
	"slices"
)

func proofs() []proof {
	return slices.Concat(fileProofs(), processProofs(), networkProofs(), schedulerProofs(), objectProofs(), blockProofs(), functionProofs(), waitProofs(), interruptProofs(), cacheProofs(), cProofs())
}

func jobs() map[string]job {
	all := map[string]job{}
	for _, of := range []map[string]job{fileJobs(), processJobs(), networkJobs(), schedulerJobs(), objectJobs(), blockJobs(), functionJobs(), waitJobs(), interruptJobs(), cacheJobs(), cJobs()} {
		maps.Copy(all, of)
	}
	return all
}
