package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func databaseCases() []comparison {
	return []comparison{
		{"dbslower", "pgbench", "log_min_duration_statement of PostgreSQL", nil, dbslower},
		{"dbstat", "pgbench", "log_min_duration_statement of PostgreSQL", nil, dbstat},
	}
}

// postgres is a PostgreSQL server in the root file system of scripts/databases.sh. It logs each
// statement of pgbench.
type postgres struct {
	root, dir string // dir is the server's directory in root
	server    string // the path of the program
}

// postgresScript is a step of the server's life, as the user of the server.
const postgresScript = `set -e
cd "$1"
export LC_ALL=C.UTF-8
bin=$(echo /usr/lib/postgresql/*/bin)
case $2 in
start)
	$bin/initdb -D data -A trust -U test -c dynamic_shared_memory_type=mmap
	$bin/pg_ctl -D data -w -l log -o "-k $1 -c listen_addresses= -c autovacuum=off -c log_line_prefix='[%a] ' -c log_min_duration_statement=0" start
	$bin/pgbench -i -q -h "$1" -U test postgres
	;;
run)
	PGAPPNAME=counted $bin/pgbench -n -c 2 -t 200 -M "$3" -h "$1" -U test postgres
	;;
stop)
	$bin/pg_ctl -D data -w -m fast stop
	;;
esac >>steps 2>&1
`

func (p *postgres) step(ctx context.Context, words ...string) error {
	args := append([]string{"--userspec=postgres:postgres", p.root, "/bin/sh", "-c", postgresScript, "sh", p.dir}, words...)
	if err := exec.CommandContext(ctx, "chroot", args...).Run(); err != nil {
		text, _ := os.ReadFile(filepath.Join(p.root, p.dir, "steps"))
		return fmt.Errorf("%s PostgreSQL: %w: %s", words[0], err, text)
	}
	return nil
}

func (m *machine) startPostgres(ctx context.Context) (*postgres, error) {
	path, err := output(ctx, filepath.Join(m.root, "scripts/databases.sh"), "--path")
	if err != nil {
		return nil, err
	}
	p := &postgres{root: strings.TrimSpace(path)}
	servers, err := filepath.Glob(p.root + "/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(servers) == 0 {
		return nil, fmt.Errorf("%w: PostgreSQL is not installed (scripts/databases.sh installs it)", errMissing)
	}
	p.server = servers[0]
	dir, err := os.MkdirTemp(p.root+"/tmp", "truth")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	p.dir = strings.TrimPrefix(dir, p.root)
	if err := os.Chmod(dir, 0o777); err != nil { // the user of the server writes to it
		return nil, errors.Join(err, p.close())
	}
	if err := p.step(ctx, "start"); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *postgres) close() error { return os.RemoveAll(p.root + p.dir) }

var statement = regexp.MustCompile(`(?m)^\[counted\] LOG:  duration: [0-9.]+ ms  (?:statement|execute \S+): (.*)`)

// pgbench runs pgbench while a tool observes the server. It returns the tool's output and the
// statements in the log of the server.
func (m *machine) pgbench(ctx context.Context, mode string, args ...string) (*observed, []string, error) {
	p, err := m.startPostgres(ctx)
	if err != nil {
		return nil, nil, err
	}
	out, err := m.observe(ctx, func() error { return p.step(ctx, "run", mode) }, append(args, "-x", p.server)...)
	err = errors.Join(err, p.step(context.WithoutCancel(ctx), "stop"))
	log, readErr := os.ReadFile(filepath.Join(p.root, p.dir, "log"))
	if err := errors.Join(err, readErr, p.close()); err != nil {
		return nil, nil, err
	}
	var texts []string
	for _, match := range statement.FindAllStringSubmatch(string(log), -1) {
		texts = append(texts, match[1])
	}
	return out, texts, nil
}

func dbslower(ctx context.Context, m *machine) (figures []figure, err error) {
	for _, mode := range []string{"simple", "extended", "prepared"} {
		out, texts, err := m.pgbench(ctx, mode, "dbslower", "postgres", "-m", "0")
		if err != nil {
			return nil, err
		}
		counts := map[string]int{}
		for _, text := range texts {
			counts[strings.TrimSuffix(text, ";")]++
		}
		same := out.lost()
		for _, r := range out.rows {
			if text := strings.TrimSuffix(r.str("query"), ";"); counts[text] > 0 && r.str("command") != "prepare" {
				counts[text]--
				same++
			}
		}
		figures = append(figures, figure{"statements with the same text, -M " + mode, same, float64(len(texts)), 0, ""})
	}
	return figures, nil
}

func dbstat(ctx context.Context, m *machine) ([]figure, error) {
	out, texts, err := m.pgbench(ctx, "simple", "dbstat", "postgres")
	if err != nil {
		return nil, err
	}
	return []figure{{"queries", out.sum("count") + out.lost(), float64(len(texts)), 0, ""}}, nil
}
