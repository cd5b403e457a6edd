package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whose requests those to an object store are is one that was named, or the first that has a
// key: what was named and is not to be had is said, and never made up for by the role. What is
// said quotes no secret.
func TestStoreKey(t *testing.T) {
	roleFails := false
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if roleFails {
			w.WriteHeader(500)
			return
		}
		fmt.Fprint(w, `{"AccessKeyId": "of the role", "SecretAccessKey": "s", "Token": "t", "Expiration": "2999-01-01T00:00:00Z"}`)
	}))
	defer role.Close()
	home := t.TempDir()
	for _, name := range []string{"AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL)
	file := filepath.Join(home, ".aws", "credentials")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	const pair = "aws_access_key_id = of %s\naws_secret_access_key = hush\n"
	profiles := fmt.Sprintf("[default]\n"+pair+"[work]\n"+pair+"[half]\naws_access_key_id = x\n[bare]\nregion = x\n", "default", "work")
	for _, c := range []struct {
		name, file, env string
		want            string // the key, or what the error says
	}{
		{"the environment's", profiles, "AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_PROFILE=none", "a"},
		{"half of the environment's", profiles, "AWS_ACCESS_KEY_ID=a", "error: AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not"},
		{"the other half", profiles, "AWS_SECRET_ACCESS_KEY=a", "error: AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not"},
		{"a profile", profiles, "AWS_PROFILE=work", "of work"},
		{"a mistyped profile", profiles, "AWS_PROFILE=wrok", `error: profile "wrok" (AWS_PROFILE): there is no such profile`},
		{"a profile without files", "", "AWS_PROFILE=work", `error: profile "work" (AWS_PROFILE): `},
		{"half a profile", profiles, "AWS_PROFILE=half", "error: profile \"half\" (AWS_PROFILE): profile has partial static credentials"},
		{"a profile without a key", profiles, "AWS_PROFILE=bare", `error: profile "bare" (AWS_PROFILE): it holds no key`},
		{"a file", profiles, "AWS_SHARED_CREDENTIALS_FILE=~/.aws/credentials AWS_PROFILE=work", "of work"},
		{"a file that is not there", profiles, "AWS_SHARED_CREDENTIALS_FILE=/none", "error: /none (AWS_SHARED_CREDENTIALS_FILE): open /none"},
		{"the default profile", profiles, "", "of default"},
		{"a broken file", "[default]\naws_secret_access_key hush\n", "", "error: the default profile of ~/.aws: it cannot be read"},
		{"no default profile", "[work]\n", "", "of the role"},
		{"a default profile without a key", "[default]\nregion = x\n", "", "of the role"},
		{"no file", "", "", "of the role"},
		{"a role that fails", "", "ROLE=fails", "error: 500"},
	} {
		os.Remove(file)
		if c.file != "" {
			if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		env := map[string]string{}
		for _, v := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(v, "=")
			env[name] = value
		}
		roleFails = env["ROLE"] == "fails"
		got := ""
		key, err := storeKey(func(name string) string { return env[name] })
		if err == nil {
			v, gerr := key.GetWithContext(nil)
			got, err = v.AccessKeyID, gerr
		}
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want && !(err != nil && strings.HasPrefix(got, c.want)) || strings.Contains(got, "hush") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
