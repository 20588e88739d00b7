"""The web interface in real Chromium: its pages in every width and colour, each page's job, and a hostile tab."""
