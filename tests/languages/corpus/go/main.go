package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sort"
	"sync"
	"time"
)

func main() {
	var wg sync.WaitGroup
	var mu sync.Mutex
	squares := []int{}
	results := make(chan int, 100)
	for i := 0; i < 100; i++ {
		wg.Add(1)
		go func(n int) {
			defer wg.Done()
			results <- n * n
		}(i)
	}
	wg.Wait()
	close(results)
	for r := range results {
		mu.Lock()
		squares = append(squares, r)
		mu.Unlock()
	}
	sort.Ints(squares)
	fmt.Println(len(squares), squares[99])

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(map[string]string{"path": r.URL.Path})
	}))
	response, err := http.Get("http://" + listener.Addr().String() + "/žluť")
	if err != nil {
		panic(err)
	}
	body, _ := io.ReadAll(response.Body)
	fmt.Print(response.StatusCode, " ", string(body))

	os.MkdirAll("d/e", 0o755)
	os.WriteFile("d/e/f", []byte("x"), 0o600)
	entries, _ := os.ReadDir("d")
	fmt.Println(entries[0].Name(), entries[0].IsDir())
	out, err := exec.Command("echo", "child").Output()
	fmt.Print(string(out), err, "\n")
	select {
	case <-time.After(5 * time.Millisecond):
		fmt.Println("timer")
	}
	fmt.Println(time.Unix(0, 0).UTC().Format(time.RFC3339))
	defer func() { fmt.Println("recovered:", recover()); os.Exit(6) }()
	var none map[string]int
	none["x"] = 1
}
