// Package page turns records into one HTML file that a browser opens from
// disk: verdict first, then doubts, sortable tables, charts, the environment.
//
// In the flow it stands behind [report], whose tables and charts it shows as
// data: no figure of theirs is computed, scaled or rounded here. [Write] makes the
// file; [Extra] is what does not come from records: a comparison, which [Judged]
// makes fit, rows over nights, which [NewTrends] does, and steps as they were
// recorded, which [ReadTimelines] finds.
//
// The file carries all it needs: style, script, the data as JSON, and Chart.js
// with its zoom plugin from their npm releases (npm/packages.json has versions
// and hashes; the licences are in the file). Chart.js was chosen for linear and
// logarithmic scales, stacked bars and tooltips on one canvas in 210 kB, without
// a word of style that a content security policy would have to allow. Looked at
// and left: uPlot (50 kB, but bars that stack and tooltips would be our code),
// ECharts (1.1 MB, and its tooltips need inline styles), and
// chartjs-chart-error-bars (no intervals on stacked bars, none that leave the
// frame).
//
// Timelines are drawn by the page's own script on a canvas. Chart.js has bars that
// float, but one for each of thousands of spans, and bars narrower than a pixel are
// rounded away or over each other, where a column here is filled by the shares of
// its time, so that a picture of a whole step says how much of it was busy; nor does
// it zoom from milliseconds to one gap of nanoseconds with exact integers. Timeline
// libraries that make an element of the document for each span are too slow for
// steps of thousands, and Perfetto's viewer is an application: the files beside the
// record are for it.
//
// The package keeps one rule: text from records is never markup. html/template
// escapes it, JSON carries it as data, the script sets it as text, and the
// policy in the file's head lets nothing run or load but what the file holds.
package page
