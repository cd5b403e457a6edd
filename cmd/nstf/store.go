package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/work"
)

// inStore reports whether a work folder is in an object store.
func inStore(path string) bool { return strings.Contains(path, "://") }

// meeting returns where shards meet: a folder, or a prefix of an object store whose address and
// keys the environment names, as AWS' own programs take them.
func (a *app) meeting(path string) (work.Place, error) {
	if !inStore(path) {
		return work.Dir(path), nil
	}
	b, err := work.ParseBucket(path)
	if err != nil {
		return nil, err
	}
	get := a.env.get
	if get == nil {
		get = func(string) string { return "" }
	}
	b.Endpoint = cmp.Or(get("AWS_ENDPOINT_URL_S3"), get("AWS_ENDPOINT_URL"))
	b.Region = cmp.Or(get("AWS_REGION"), get("AWS_DEFAULT_REGION"))
	b.Agent = [2]string{"nstf", newVersionReport().Version}
	b.Note = a.warn
	b.Key, err = storeKey(get)
	return b, err
}

// storeKey returns whose requests those to an object store are: the environment's, those of
// the profile or file that it names, of the shared files' default profile, or of the role that
// the machine, container or pod has. One of them is chosen: what was named and is not to be had
// is not made up for by another.
func storeKey(get func(string) string) (*credentials.Credentials, error) {
	const idName, secretName = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
	id, secret := get(idName), get(secretName)
	switch {
	case id != "" && secret != "":
		return credentials.NewStaticV4(id, secret, get("AWS_SESSION_TOKEN")), nil
	case id != "":
		return nil, usagef("%s is set, and %s is not", idName, secretName)
	case secret != "":
		return nil, usagef("%s is set, and %s is not", secretName, idName)
	}
	file, profile := get("AWS_SHARED_CREDENTIALS_FILE"), get("AWS_PROFILE")
	var named []string
	if profile != "" {
		named = append(named, fmt.Sprintf("profile %q (AWS_PROFILE)", formats.Brief(profile, 100)))
	}
	if file != "" {
		named = append(named, formats.Brief(file, 300)+" (AWS_SHARED_CREDENTIALS_FILE)")
		file = filepath.Clean(expanded(file))
	}
	shared := sharedKey{&credentials.FileAWSCredentials{Filename: file, Profile: cmp.Or(profile, "default")},
		cmp.Or(strings.Join(named, " in "), "the default profile of ~/.aws")}
	if len(named) == 0 && shared.without() {
		return credentials.New(&credentials.IAM{Region: cmp.Or(get("AWS_REGION"), get("AWS_DEFAULT_REGION"))}), nil
	}
	return credentials.New(shared), nil
}

// A sharedKey is one of AWS' shared files.
type sharedKey struct {
	*credentials.FileAWSCredentials
	what string
}

// without reports whether nobody has put a key there. Files that cannot be read may hold one.
func (s sharedKey) without() bool {
	key, err := s.FileAWSCredentials.RetrieveWithCredContext(nil)
	return err == nil && key.AccessKeyID == "" || errors.Is(err, fs.ErrNotExist) || noProfile(err)
}

// RetrieveWithCredContext implements credentials.Provider.
func (s sharedKey) RetrieveWithCredContext(how *credentials.CredContext) (credentials.Value, error) {
	key, err := s.FileAWSCredentials.RetrieveWithCredContext(how)
	switch _, path := errors.AsType[*fs.PathError](err); {
	case err == nil && key.AccessKeyID == "":
		err = errors.New("it holds no key")
	case noProfile(err):
		err = errors.New("there is no such profile")
	case err != nil && !path && !sayable.MatchString(err.Error()):
		err = errors.New("it cannot be read") // the error may quote a line, and that a secret
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", s.what, err)
	}
	return key, err
}

// Retrieve implements credentials.Provider.
func (s sharedKey) Retrieve() (credentials.Value, error) { return s.RetrieveWithCredContext(nil) }

// noProfile reports whether an error of minio's is that shared files have not the profile.
func noProfile(err error) bool { return err != nil && missingProfile.MatchString(err.Error()) }

var (
	missingProfile = regexp.MustCompile(`^section ".*" does not exist$`)
	sayable        = regexp.MustCompile(`^(profile (has|defines) |(cached|reading cached|parsing cached|fetching|parsing|creating) SSO |SSO portal |unable to determine AWS SSO |sso_region |invalid credential process|exec: |exit status )`)
)
