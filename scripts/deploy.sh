#!/bin/sh
# Write the plain manifests of deploy/kubernetes from the Helm chart, or check chart and manifests:
#
#	scripts/deploy.sh		# write
#	scripts/deploy.sh check		# helm lint, kubeconform, current manifests, the agent's configuration
#
# helm, kubeconform and the schemas of Kubernetes come through the Go module proxy and are kept in
# corescope/deploy in the user's cache. Building them takes some minutes.
set -eu
cd "$(dirname "$0")/.."

helm=v4.3.1
kubeconform=v0.8.0
kubernetes=v1.36.3
chart=deploy/helm/corescope
tools=${XDG_CACHE_HOME:-$HOME/.cache}/corescope/deploy

install_program() { # NAME MODULE VERSION
	[ -x "$tools/$1-$3" ] && return
	echo "deploy: building $1 $3" >&2
	GOBIN=$tools GOFLAGS='' CGO_ENABLED=0 go install "$2@$3"
	mv "$tools/$1" "$tools/$1-$3"
}

install_schemas() {
	[ -d "$tools/schemas-$kubernetes" ] && return
	dir=$(go mod download -json "k8s.io/kubernetes@$kubernetes" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	rm -rf "$tools/schemas"
	mkdir "$tools/schemas"
	go run ./scripts/kubeschema "$dir/api/openapi-spec/swagger.json" "$tools/schemas"
	mv "$tools/schemas" "$tools/schemas-$kubernetes"
}

# manifests prints the objects of the default values. Labels of Helm are left out.
manifests() {
	cat <<-'END'
		# Written by scripts/deploy.sh from the Helm chart (deploy/helm/corescope): do not edit it.
		#
		#	kubectl apply -f deploy/kubernetes/corescope.yaml
		apiVersion: v1
		kind: Namespace
		metadata:
		  name: corescope
		  labels:
		    # hostPID and hostPath are not allowed by default where the admission of pods is restricted.
		    pod-security.kubernetes.io/enforce: privileged
	END
	"$tools/helm-$helm" template corescope "$chart" --namespace corescope |
		sed '/helm.sh\/chart:/d; /app.kubernetes.io\/managed-by:/d; /^# Source:/d'
}

check() {
	"$tools/helm-$helm" lint --strict --quiet "$chart"
	manifests >"$tmp/manifests"
	cmp -s "$tmp/manifests" deploy/kubernetes/corescope.yaml || {
		echo 'deploy: deploy/kubernetes is not current: run scripts/deploy.sh' >&2
		return 1
	}
	conform <"$tmp/manifests"
	# All values that templates depend on.
	"$tools/helm-$helm" template other "$chart" --namespace x -f scripts/deploy-values.yaml >"$tmp/all"
	conform -skip PodMonitor <"$tmp/all"
	for file in "$tmp/manifests" "$tmp/all"; do
		sed -n '/^  agent.yaml:/,/^---/s/^    //p' "$file" >"$tmp/agent.yaml"
		go run ./cmd/corescope-agent --check --config "$tmp/agent.yaml"
	done
}

conform() {
	"$tools/kubeconform-$kubeconform" -strict -summary \
		-schema-location "$tools/schemas-$kubernetes/{{ .ResourceKind }}{{ .KindSuffix }}.json" "$@"
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tools"
install_program helm helm.sh/helm/v4/cmd/helm "$helm"
case ${1:-write} in
write)
	manifests >"$tmp/manifests"
	mkdir -p deploy/kubernetes
	cp "$tmp/manifests" deploy/kubernetes/corescope.yaml
	;;
check)
	install_program kubeconform github.com/yannh/kubeconform/cmd/kubeconform "$kubeconform"
	install_schemas
	check
	;;
*)
	echo "usage: $0 [check]" >&2
	exit 2
	;;
esac
