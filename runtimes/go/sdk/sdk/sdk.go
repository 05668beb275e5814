// SPDX-License-Identifier: Apache-2.0

// Package sdk lies beside the program of a POST /run: what it hands over as metadata.
package sdk

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
)

const path = "/metadata/.quartermaster_metadata.json"

// SetMetadata makes data, anything that JSON can say, the metadata of the answer.
func SetMetadata(data any) error {
	text, err := json.Marshal(data)
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	return err
}

// GetMetadata fills in dest from what was set before and leaves it alone when nothing was.
func GetMetadata(dest any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, dest)
	}
	return err
}

var errNoFlow = errors.New("there are files only in a flow, and a box has no network to reach one")

// LoadFile is there for programs that name it; a box cannot reach the files of a flow.
func LoadFile(name string) (string, error) { return "", errNoFlow }

// SaveFile is there for programs that name it; a box cannot reach the files of a flow.
func SaveFile(name, content string) error { return errNoFlow }
