// Command trbench runs a training step eager and captured as graphs and says
// what the difference is. All of it is in internal/cli; here the program meets
// the operating system.
package main

import (
	"os"

	"github.com/tech-renaissance/trbench/internal/cli"
)

func main() { os.Exit(cli.Main(cli.OS())) }
