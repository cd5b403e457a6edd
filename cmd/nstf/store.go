package main

import (
	"cmp"
	"path/filepath"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"

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
	b.Key = storeKey(get)
	return b, nil
}

// storeKey returns whose requests those to an object store are: the environment's, the
// shared file's, or those of the role that the machine, container or pod has.
func storeKey(get func(string) string) *credentials.Credentials {
	if id, secret := get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY"); id != "" && secret != "" {
		return credentials.NewStaticV4(id, secret, get("AWS_SESSION_TOKEN"))
	}
	file := get("AWS_SHARED_CREDENTIALS_FILE")
	if file != "" {
		file = filepath.Clean(expanded(file))
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.FileAWSCredentials{Filename: file, Profile: get("AWS_PROFILE")},
		&credentials.IAM{Region: cmp.Or(get("AWS_REGION"), get("AWS_DEFAULT_REGION"))},
	})
}
