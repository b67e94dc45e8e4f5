package target

import (
	"fmt"
	"testing"
)

func TestParseField(t *testing.T) {
	for line, want := range map[string]string{
		"\tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;":                                 "int dfd at 16, 8 bytes, -1 elements, false",
		"\tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;":                   "const char * filename at 24, 8 bytes, -1 elements, false",
		"\tfield:__data_loc char[] name;\toffset:8;\tsize:4;\tsigned:0;":                   "__data_loc char[] name at 8, 4 bytes, -1 elements, false",
		"\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;":                      "char prev_comm at 8, 16 bytes, 0 elements, false",
		"\tfield:char comm[TASK_COMM_LEN];\toffset:8;\tsize:16;\tsigned:0;":                "char comm at 8, 16 bytes, 0 elements, false",
		"\tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;":                  "unsigned long args at 16, 48 bytes, 0 elements, false",
		"\tfield:__u8 saddr[sizeof(struct sockaddr_in6)];\toffset:8;\tsize:28;\tsigned:0;": "__u8 saddr at 8, 28 bytes, 0 elements, false",
		"\tfield:pid_t pid;\toffset:12;\tsize:4;\tsigned:1;":                               "pid_t pid at 12, 4 bytes, -1 elements, true",
	} {
		f, ok := ParseField(line)
		if got := fmt.Sprintf("%s %s at %d, %d bytes, %d elements, %v", f.Kind, f.Name, f.Offset, f.Size, f.Elems, f.Signed); !ok || got != want {
			t.Errorf("%s is parsed as %s, %v, want %s", line, got, ok, want)
		}
	}
	for _, line := range []string{"name: x", "format:", "print fmt: \"%d\", REC->x", ""} {
		if f, ok := ParseField(line); ok {
			t.Errorf("%q is parsed as %+v, want no field", line, f)
		}
	}
}

func TestCommonFields(t *testing.T) {
	for line, want := range map[string]bool{
		"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;":              true,
		"\tfield:unsigned char common_preempt_lazy_count;\toffset:8;\tsize:1;\tsigned:0;": true,
		"\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;":                               false,
	} {
		if f, ok := ParseField(line); !ok || f.IsCommon() != want {
			t.Errorf("%s: %+v, %v, want %v", line, f, ok, want)
		}
	}
}
